package query

import "strings"

type kind int

const (
	end    kind = iota
	word        // a pattern, or the name of a function, rule or attribute
	quoted      // text holds what is between the quotes
	symbol      // one of ( ) , + ^ -
	broken      // a quote without its end
)

type token struct {
	kind kind
	text string
	pos  int // in bytes
}

// lexer cuts an expression into tokens. A + or - inside a word belongs to it, as
// in the label //a:c++; at the start of a token it is an operator.
type lexer struct {
	text string
	pos  int
}

const (
	space   = " \t\r\n"
	symbols = "(),+^-"
	// stops end a word.
	stops = space + `(),^"'`
)

func (l *lexer) token() token {
	l.pos += len(l.text[l.pos:]) - len(strings.TrimLeft(l.text[l.pos:], space))
	rest, start := l.text[l.pos:], l.pos
	switch {
	case rest == "":
		return token{end, "", start}
	case strings.IndexByte(symbols, rest[0]) >= 0:
		l.pos++
		return token{symbol, rest[:1], start}
	case rest[0] == '"' || rest[0] == '\'':
		n := strings.IndexByte(rest[1:], rest[0])
		if n < 0 {
			l.pos = len(l.text)
			return token{broken, rest, start}
		}
		l.pos += n + 2
		return token{quoted, rest[1 : n+1], start}
	}
	n := strings.IndexAny(rest, stops)
	if n < 0 {
		n = len(rest)
	}
	l.pos += n
	return token{word, rest[:n], start}
}
