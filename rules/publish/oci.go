package publish

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// reportType is the config media type, which tells what kind of artifact it is.
const reportType types.MediaType = "application/vnd.assay.report.v1+json"

const htmlType types.MediaType = "text/html"

// title is the annotation that gives a layer its file name (OCI image spec).
const title = "org.opencontainers.image.title"

// file is one published file.
type file struct {
	name      string
	mediaType types.MediaType
	data      []byte
}

// writeLayout writes an OCI image layout with one layer a file. Equal files give
// an equal layout.
func writeLayout(dir string, files []file, annotations map[string]string) error {
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), reportType)
	for _, f := range files {
		var err error
		image, err = mutate.Append(image, mutate.Addendum{
			Layer:       static.NewLayer(f.data, f.mediaType),
			MediaType:   f.mediaType,
			Annotations: map[string]string{title: f.name},
		})
		if err != nil {
			return fmt.Errorf("OCI layout: layer %s: %w", f.name, err)
		}
	}
	annotated, ok := mutate.Annotations(image, annotations).(v1.Image)
	if !ok {
		return fmt.Errorf("OCI layout: annotating the image gave no image")
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	path, err := layout.Write(dir, index)
	if err != nil {
		return fmt.Errorf("OCI layout: %w", err)
	}
	if err := path.AppendImage(annotated); err != nil {
		return fmt.Errorf("OCI layout: %w", err)
	}
	// The library's modes follow the umask and make everything executable.
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		return os.Chmod(path, 0o644)
	})
}
