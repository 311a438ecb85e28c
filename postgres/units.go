package postgres

import (
	"math"
	"strings"
)

// scale is a family of units, the smallest first; sizes are multiples of that one.
type scale []struct {
	name string
	size float64
}

var (
	bytesScale = scale{{"B", 1}, {"kB", 1 << 10}, {"MB", 1 << 20}, {"GB", 1 << 30}, {"TB", 1 << 40}}
	timeScale  = scale{{"us", 1}, {"ms", 1e3}, {"s", 1e6}, {"min", 60e6}, {"h", 3600e6}, {"d", 86400e6}}
)

// blockUnit is the unit of settings that count PostgreSQL's blocks.
const blockUnit = "8kB"

// familyOf is the family of a setting's unit; nil if it has none.
func familyOf(unit string) scale {
	switch unit {
	case "":
		return nil
	case "B", "kB", blockUnit, "MB":
		return bytesScale
	default:
		return timeScale
	}
}

func (s scale) names() string {
	var names []string
	for _, unit := range s {
		names = append(names, unit.name)
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}

// convert expresses a number of one unit in another. As in PostgreSQL, a fraction is rounded to the next smaller unit:
// 1.5GB are 1536MB.
func (s scale) convert(number float64, from, to string) (float64, bool) {
	base := 8.0 * (1 << 10)
	for _, unit := range s {
		if unit.name == to {
			base = unit.size
		}
	}
	for i, unit := range s {
		if unit.name != from {
			continue
		}
		if i == 0 {
			return number * unit.size / base, true
		}
		smaller := s[i-1].size
		return math.RoundToEven(number*unit.size/smaller) * smaller / base, true
	}
	return 0, false
}
