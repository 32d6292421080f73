package container

type provenanceJSON struct {
	Build      buildJSON      `json:"build"`
	Checkpoint checkpointJSON `json:"checkpoint"`
	Source     *originJSON    `json:"source,omitempty"`
	Version    int            `json:"version"`
}

type buildJSON struct {
	FP32Layers         []int64 `json:"fp32_layers"`
	MaxSequenceLength  int64   `json:"max_sequence_length"`
	Precision          string  `json:"precision"`
	Quantization       *string `json:"quantization"`
	TensorParallelSize int64   `json:"tensor_parallel_size"`
}

type checkpointJSON struct {
	HFID            *string `json:"hf_id"`
	Revision        *string `json:"revision"`
	RevisionClaimed bool    `json:"revision_claimed,omitempty"`
}

type originJSON struct {
	File   string `json:"file,omitempty"`
	OCI    string `json:"oci,omitempty"`
	SHA256 string `json:"sha256"`
	Wheel  string `json:"wheel,omitempty"`
}

// Encode writes p as canonical JSON (RFC 8785), without a newline at the end. A
// provenance that is not valid is not written.
func (p *Provenance) Encode() ([]byte, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	orNull := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	out := provenanceJSON{
		Version:    p.Version,
		Checkpoint: checkpointJSON{orNull(p.Checkpoint.HFID), orNull(p.Checkpoint.Revision), p.Version == 2},
		Build: buildJSON{
			FP32Layers:         append([]int64{}, p.Build.FP32Layers...),
			MaxSequenceLength:  p.Build.MaxSequenceLength,
			Precision:          p.Build.Precision,
			Quantization:       orNull(p.Build.Quantization),
			TensorParallelSize: p.Build.TensorParallelSize,
		},
	}
	if o := p.Origin; o != nil {
		out.Source = &originJSON{SHA256: o.SHA256}
		switch o.Kind {
		case FromFile:
			out.Source.File = o.Name
		case FromOCI:
			out.Source.OCI = o.Name
		case FromWheel:
			out.Source.Wheel = o.Name
		}
	}
	return marshal(out)
}

// ParseProvenance reads a provenance of version 1 or 2 and validates it. Bytes
// that are not JSON of its shape give *FormatError, with the offset in data.
func ParseProvenance(data []byte) (*Provenance, error) {
	p := &Provenance{}
	claimed := false
	err := readStrict(data, 0, ProvenanceSection, func(d *strict) error {
		keys := []string{"build", "checkpoint", "version"}
		return d.object(keys, func(key string) (err error) {
			switch key {
			case "version":
				p.Version, err = d.version()
			case "checkpoint":
				claimed, err = p.Checkpoint.parse(d)
			case "source":
				p.Origin, err = parseOrigin(d)
			case "build":
				err = p.Build.parse(d)
			default:
				err = d.unknown(append(keys, "source")...)
			}
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	if claimed != (p.Version == 2) {
		return nil, &FormatError{0, ProvenanceSection, "checkpoint.revision_claimed is true in version 2 and absent in version 1"}
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return p, nil
}

func (c *Checkpoint) parse(d *strict) (claimed bool, err error) {
	keys := []string{"hf_id", "revision"}
	err = d.object(keys, func(key string) (err error) {
		switch key {
		case "hf_id":
			c.HFID, err = d.word(true)
		case "revision":
			c.Revision, err = d.word(true)
		case "revision_claimed":
			if claimed, err = d.truth(); err == nil && !claimed {
				err = d.fail(d.dec.InputOffset(), "is false; a revision that is not only claimed makes version 1, without this key")
			}
		default:
			err = d.unknown(append(keys, "revision_claimed")...)
		}
		return err
	})
	return claimed, err
}

func parseOrigin(d *strict) (*Origin, error) {
	o := &Origin{}
	err := d.object([]string{"sha256"}, func(key string) (err error) {
		switch kind := OriginKind(key); kind {
		case FromFile, FromOCI, FromWheel:
			if o.Kind != "" {
				return d.fail(d.dec.InputOffset(), "a source has one origin, this one has %s too", o.Kind)
			}
			o.Kind = kind
			o.Name, err = d.word(false)
		default:
			if key != "sha256" {
				return d.unknown("file", "oci", "sha256", "wheel")
			}
			o.SHA256, err = d.word(false)
		}
		return err
	})
	return o, err
}

func (b *Build) parse(d *strict) error {
	keys := []string{"fp32_layers", "max_sequence_length", "precision", "quantization", "tensor_parallel_size"}
	return d.object(keys, func(key string) (err error) {
		switch key {
		case "precision":
			b.Precision, err = d.word(false)
		case "max_sequence_length":
			b.MaxSequenceLength, err = d.integer(1)
		case "tensor_parallel_size":
			b.TensorParallelSize, err = d.integer(1)
		case "quantization":
			b.Quantization, err = d.word(true)
		case "fp32_layers":
			b.FP32Layers, err = d.integers()
		default:
			err = d.unknown(keys...)
		}
		return err
	})
}

func (d *strict) version() (int, error) {
	n, err := d.integer(1)
	if err == nil && n > 2 {
		err = d.fail(d.dec.InputOffset(), "is %d; this reader knows 1 and 2", n)
	}
	return int(n), err
}

// word reads text that is not empty, since empty stands for null here.
func (d *strict) word(null bool) (string, error) {
	s, ok, err := d.text(null)
	if err == nil && ok && s == "" {
		err = d.fail(d.dec.InputOffset(), "is empty")
	}
	return s, err
}
