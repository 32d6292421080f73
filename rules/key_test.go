package rules

import (
	"maps"
	"math"
	"reflect"
	"slices"
	"testing"

	"go.starlark.net/starlark"
	"pgregory.net/rapid"

	"assay/engine/key"
	"assay/starlark/schema"
)

// Every attribute is in the key or says why it is not. For each rule: to change
// an attribute that is in the key gives another key, to change one that is not
// gives the same, and so does writing the same call in another order.
func TestKeyHoldsWhatItSays(t *testing.T) {
	for _, r := range Schemas() {
		t.Run(r.Name, rapid.MakeCheck(func(t *rapid.T) {
			loose := *r
			loose.Check = nil // it looks at several attributes at once; here each has any value
			call := drawCall(t, r)
			before, values := keyOf(t, &loose, call)
			for i := range r.Attrs {
				a := &r.Attrs[i]
				other := maps.Clone(call)
				other[a.Name] = drawValue(t, a)
				after, changed := keyOf(t, &loose, other)

				same := reflect.DeepEqual(values[a.Name], changed[a.Name])
				// Labels and files are in the key by the content they stand for.
				byItself := a.NotInKey == "" && !a.Kind.IsLabel() && !a.Kind.IsFile()
				if wantSame := same || !byItself; (before == after) != wantSame {
					t.Fatalf("%s: %#v and %#v: same key %v, want %v", a.Name, values[a.Name], changed[a.Name], before == after, wantSame)
				}
			}
			for name, v := range call {
				if d, ok := v.(*starlark.Dict); ok {
					call[name] = reversed(t, d)
				}
			}
			if after, _ := keyOf(t, &loose, call); before != after {
				t.Fatal("the order of attributes or of a dict is in the key")
			}
		}))
	}
}

// keyOf returns the key of a call, whose attributes are written in a drawn order.
func keyOf(t *rapid.T, r *schema.Rule, call map[string]starlark.Value) (string, map[string]any) {
	kwargs := []starlark.Tuple{{starlark.String("name"), starlark.String("x")}}
	for _, name := range rapid.Permutation(slices.Sorted(maps.Keys(call))).Draw(t, "order") {
		kwargs = append(kwargs, starlark.Tuple{starlark.String(name), call[name]})
	}
	values, problems := r.Unpack(kwargs)
	if len(problems) > 0 {
		t.Fatalf("drew an invalid call of %s: %v", r.Name, problems)
	}
	_, sum, err := key.Preimage{Rule: r.Name, Version: r.Version, Attrs: r.KeyAttrs(values)}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return sum.String(), values
}

func drawCall(t *rapid.T, r *schema.Rule) map[string]starlark.Value {
	call := map[string]starlark.Value{}
	for i := range r.Attrs {
		call[r.Attrs[i].Name] = drawValue(t, &r.Attrs[i])
	}
	return call
}

// drawValue draws a value that the attribute allows.
func drawValue(t *rapid.T, a *schema.Attr) starlark.Value {
	const exact = 1<<53 - 1 // the largest int that JSON keeps
	low, high := -float64(exact), float64(exact)
	if a.Min != nil {
		low = *a.Min
	}
	if a.Max != nil {
		high = *a.Max
	}
	switch a.Kind {
	case schema.Bool:
		return starlark.Bool(rapid.Bool().Draw(t, a.Name))
	case schema.Int:
		return starlark.MakeInt64(rapid.Int64Range(int64(math.Ceil(low)), int64(high)).Draw(t, a.Name))
	case schema.Float:
		return starlark.Float(rapid.Float64Range(low, high).Draw(t, a.Name))
	case schema.StringList, schema.LabelList, schema.FileList:
		var elems []starlark.Value
		for _, s := range rapid.SliceOfN(drawString(a), 0, 4).Draw(t, a.Name) {
			elems = append(elems, starlark.String(s))
		}
		return starlark.NewList(elems)
	case schema.StringDict:
		d := starlark.NewDict(0)
		for k, v := range rapid.MapOfN(rapid.String(), rapid.String(), 0, 4).Draw(t, a.Name) {
			if err := d.SetKey(starlark.String(k), starlark.String(v)); err != nil {
				t.Fatal(err)
			}
		}
		return d
	}
	return starlark.String(drawString(a).Draw(t, a.Name))
}

func drawString(a *schema.Attr) *rapid.Generator[string] {
	switch {
	case a.Kind.IsLabel() || a.Kind.IsFile():
		return rapid.StringMatching(`:[a-z]{1,8}`)
	case len(a.Values) > 0:
		return rapid.SampledFrom(a.Values)
	case a.Pattern != "":
		return rapid.StringMatching("^(" + a.Pattern + ")$")
	}
	return rapid.String()
}

// reversed is the dict with its entries in the opposite order.
func reversed(t *rapid.T, d *starlark.Dict) *starlark.Dict {
	r := starlark.NewDict(d.Len())
	for _, kv := range slices.Backward(d.Items()) {
		if err := r.SetKey(kv[0], kv[1]); err != nil {
			t.Fatal(err)
		}
	}
	return r
}
