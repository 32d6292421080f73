package lockfile

import "strings"

// Requirements is the lock as a requirements file, in one form: equal for two
// locks exactly if they pin the same. It is what an installer is given.
func (l *Lock) Requirements() []byte {
	var b strings.Builder
	for _, p := range l.Packages {
		b.WriteString(p.Name + "==" + p.Version)
		if p.Marker != "" {
			b.WriteString(" ; " + p.Marker)
		}
		for _, h := range p.Hashes {
			b.WriteString(" \\\n    --hash=" + h)
		}
		b.WriteByte('\n')
	}
	return []byte(b.String())
}
