package bundle

import (
	"fmt"
	"io"
	"os"

	"assay/rules/internal/gguf"
)

// model is what a GGUF file says of itself.
type model struct {
	file      *gguf.File
	precision string
	context   uint64 // tokens the model was made for
}

// precisions names the values of general.file_type (llama.cpp's llama_ftype).
var precisions = map[uint64]string{
	0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1",
	10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M",
	16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 32: "BF16",
}

func readModel(path, name string) (*model, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return parseModel(f, info.Size(), name)
}

// parseModel reads the metadata of a GGUF file, which errors call name.
func parseModel(r io.ReaderAt, size int64, name string) (*model, error) {
	parsed, err := gguf.Read(r, size)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	m := &model{file: parsed}
	fileType, err := parsed.Uint("general.file_type")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var ok bool
	if m.precision, ok = precisions[fileType]; !ok {
		return nil, fmt.Errorf("%s: general.file_type is %d, which is not a known precision", name, fileType)
	}
	architecture, err := parsed.String("general.architecture")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if m.context, err = parsed.Uint(architecture + ".context_length"); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return m, nil
}

func (m *model) checkPrecision(want string) error {
	if m.precision != want {
		return fmt.Errorf("the weights are %s, the target declares precision %q", m.precision, want)
	}
	return nil
}

func (m *model) checkContext(want int64) error {
	if uint64(want) > m.context {
		return fmt.Errorf("the model was made for %d tokens, the target declares context %d", m.context, want)
	}
	return nil
}
