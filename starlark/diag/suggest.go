package diag

// Suggest returns the candidate that name was most likely meant to be, or ""
// when none is near: at most one slip in three characters. Of equally near
// candidates the first wins, so pass them in a stable order.
func Suggest(name string, candidates []string) string {
	best, limit := "", (len([]rune(name))+1)/3
	for _, c := range candidates {
		if c == name {
			continue
		}
		if d := distance([]rune(name), []rune(c), limit); d <= limit {
			best, limit = c, d-1
		}
	}
	return best
}

// distance counts the insertions, deletions, replacements and swaps of
// neighbours that turn a into b. Anything above limit is returned as limit+1.
func distance(a, b []rune, limit int) int {
	if len(a)-len(b) > limit || len(b)-len(a) > limit {
		return limit + 1
	}
	// Three rows of the usual table: swaps look two rows back.
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range a {
		before, last, row = last, row, before
		row[0] = i + 1
		least := row[0]
		for j := range b {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
			least = min(least, row[j+1])
		}
		if least > limit {
			return limit + 1
		}
	}
	return min(row[len(b)], limit+1)
}
