package jsonl

import (
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"
)

var shapes = NewFields("a", "six", "seven", "sixteen_letters_", "twenty_letters_in_it", "a_name_of_28_letters_at_most", "z")

// Members are found in whatever form and order they stand, up to the last byte of the
// input, and only once.
func TestMembersAreFoundInEveryForm(t *testing.T) {
	names := []string{"a", "six", "seven", "sixteen_letters_", "twenty_letters_in_it", "a_name_of_28_letters_at_most", "z", "seve", "sevens", ""}
	values := []string{"1", `"x"`, "[]", "{}", "12345678901234567", `"` + strings.Repeat("é", 20) + `"`, "null"}
	for seed := range 2000 {
		draw := func(n int) int {
			seed = seed*1103515245 + 12345
			return seed >> 8 & 0xffff % n
		}
		order := names[draw(3):]
		if draw(2) == 0 {
			order = []string{names[draw(10)], names[draw(10)]}
		}
		space := []string{"", "", "", " ", "\n\t"}
		gap := func() string { return space[draw(5)] }
		text, want, twice := gap()+"{", "", false
		seen := map[string]bool{}
		for i, name := range order {
			if i > 0 {
				text += gap() + ","
			}
			value := values[draw(7)]
			key := name
			if draw(9) == 0 {
				key = strings.Replace(key, "e", `\u0065`, 1)
			}
			text += gap() + `"` + key + `"` + gap() + ":" + gap() + value
			want += name + "=" + value + ";"
			twice, seen[name] = twice || seen[name], true
		}
		text += gap() + "}"
		read := func(text string, all bool) (got string, err error) {
			var s Scanner
			s.Reset([]byte(text))
			m := s.Members(shapes)
			for m.Next() {
				if !all {
					continue
				}
				raw, err := s.Raw()
				if err != nil {
					return got, err
				}
				got += string(m.Key()) + "=" + string(raw) + ";"
			}
			if m.Err() != nil {
				return got, m.Err()
			}
			return got, s.End()
		}
		got, err := read(text, true)
		_, skipped := read(text, false)
		if twice != (err != nil) || twice != (skipped != nil) || !twice && got != want {
			t.Fatalf("%q: got %s, %v, %v", text, got, err, skipped)
		}
		if cut := draw(len(text)-1) + 1; !twice {
			if _, err := read(text[:cut], true); err == nil {
				t.Fatalf("%q was read without its end", text[:cut])
			}
		}
	}
}

// Numbers of all sizes, wherever the input ends behind them.
func TestIntsOfAllSizes(t *testing.T) {
	digits := "9223372036854775807" + "123"
	for size := 1; size <= len(digits); size++ {
		for _, first := range []string{"", "0", "1", "9"} {
			number := first + digits[:size]
			for _, sign := range []string{"", "-"} {
				for pad := range 30 {
					text := sign + number + "," + strings.Repeat("7", pad)
					var s Scanner
					s.Reset([]byte(text))
					n, known, err := s.OptInt()
					want, _ := new(big.Int).SetString(sign+number, 10)
					// Beyond 64 bits a number is one if a float64 has it exactly: never here.
					legal := want.IsInt64() && first != "0"
					if (err == nil) != legal || legal && (!known || n != want.Int64() || s.Offset() != len(sign)+len(number)) {
						t.Fatalf("%s: %d, %v, %v", text, n, known, err)
					}
				}
			}
		}
	}
	for text, want := range map[string]int64{"0": 0, "0}": 0, "1e3": 1000, "12345678e1": 123456780, "1234567890.0": 1234567890, fmt.Sprint(math.MinInt64): math.MinInt64} {
		var s Scanner
		s.Reset([]byte(text))
		if n, known, err := s.OptInt(); n != want || !known || err != nil {
			t.Errorf("%s: %d, %v, %v", text, n, known, err)
		}
	}
}

// Strings stay as they are while others are made.
func TestTextsLast(t *testing.T) {
	var texts Texts
	var made []string
	buf := make([]byte, 0, 3000)
	text := func(i int) string { return strings.Repeat(fmt.Sprint(i, "é"), i%200) }
	for i := range 5000 {
		buf = append(buf[:0], text(i)...)
		made = append(made, texts.String(buf))
	}
	for i, s := range made {
		if s != text(i) {
			t.Fatalf("string %d is now %q", i, s)
		}
	}
}
