package outcome

import (
	"fmt"
	"strings"
)

// Conflict is one field that another manager owns with another value.
type Conflict struct {
	Manager string
	Path    string
}

// Describe lists conflicts for people, by manager.
func Describe(conflicts []Conflict) string {
	var parts []string
	for i := 0; i < len(conflicts); {
		j := i
		var paths []string
		for ; j < len(conflicts) && conflicts[j].Manager == conflicts[i].Manager; j++ {
			paths = append(paths, conflicts[j].Path)
		}
		parts = append(parts, fmt.Sprintf("%q owns %s", conflicts[i].Manager, strings.Join(paths, ", ")))
		i = j
	}
	return strings.Join(parts, "; ")
}
