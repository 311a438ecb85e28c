package outcome

import (
	"fmt"
	"strings"
)

// Conflict is one field that another manager owns with another value.
type Conflict struct {
	Manager string
	// Subresource through which the manager wrote, such as scale; empty for the object itself.
	Subresource string
	Path        string
}

// writer names who set a field, and by what way.
func (c Conflict) writer() string {
	if c.Subresource != "" {
		return fmt.Sprintf("%q through the subresource %s", c.Manager, c.Subresource)
	}
	return fmt.Sprintf("%q", c.Manager)
}

// Describe lists conflicts for people, by manager.
func Describe(conflicts []Conflict) string {
	var parts []string
	for i := 0; i < len(conflicts); {
		j := i
		var paths []string
		for ; j < len(conflicts) && conflicts[j].writer() == conflicts[i].writer(); j++ {
			paths = append(paths, conflicts[j].Path)
		}
		parts = append(parts, fmt.Sprintf("%s set %s", conflicts[i].writer(), strings.Join(paths, ", ")))
		i = j
	}
	return strings.Join(parts, "; ")
}
