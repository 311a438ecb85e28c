package history

import (
	"fmt"
	"slices"
)

// checkAppends looks for what is there and should not be, and the reverse.
func (v *Verdict) checkAppends(operations []Operation, final Final) {
	appends := map[int64]Operation{}
	for _, o := range operations {
		if o.Kind == Append {
			appends[o.Value] = o
		}
	}
	there := map[int]map[int64]bool{}
	for key, list := range final.Lists {
		there[key] = make(map[int64]bool, len(list))
		for _, value := range list {
			o, known := appends[value]
			switch {
			case there[key][value]:
				v.wrong("list %d holds %d twice", key, value)
			case !known || !slices.Contains(o.Keys, key):
				v.wrong("list %d holds %d, which nobody appended to it", key, value)
			case o.Outcome == Failed:
				v.wrong("list %d holds %d, whose append failed: %s", key, value, o.Error)
			}
			there[key][value] = true
		}
	}
	seen := map[int64]bool{}
	for _, o := range operations {
		if o.Outcome != Acknowledged {
			continue // it saw its own value
		}
		for _, list := range o.Lists {
			for _, value := range list {
				seen[value] = true
			}
		}
	}
	for value, o := range appends {
		found := 0
		for _, key := range o.Keys {
			if there[key][value] {
				found++
			}
		}
		switch {
		case found == len(o.Keys):
		case found > 0:
			v.wrong("%d is in %d of the %d lists of its transaction", value, found, len(o.Keys))
		case o.Outcome == Acknowledged:
			v.Lost = append(v.Lost, fmt.Sprintf("%d in lists %v, acknowledged at %s by %s on timeline %d", value, o.Keys, o.End, o.Server, o.Timeline))
		case o.Outcome == Unknown && seen[value]:
			v.Vanished = append(v.Vanished, fmt.Sprintf("%d in lists %v: %s", value, o.Keys, o.Error))
		}
	}
	slices.Sort(v.Lost)
	slices.Sort(v.Vanished)
	for _, o := range operations {
		for key, list := range o.Lists {
			v.checkSeen(o, key, list, final.Lists[key])
		}
	}
}

// checkSeen wants a list that somebody saw to be the beginning of the final one, but for an end that was lost.
func (v *Verdict) checkSeen(o Operation, key int, list, final []int64) {
	kept := commonPrefix(list, final)
	for _, value := range list[kept:] {
		if slices.Contains(final, value) {
			v.wrong("client %d saw %d as number %d of list %d, and it is now number %d: an update between was lost",
				o.Client, value, slices.Index(list, value)+1, key, slices.Index(final, value)+1)
			return
		}
	}
	if o.Kind == Append && o.Outcome == Acknowledged && (len(list) == 0 || list[len(list)-1] != o.Value) {
		v.wrong("client %d appended %d to list %d and did not see it at its end", o.Client, o.Value, key)
	}
}

func (v *Verdict) wrong(format string, args ...any) {
	v.Wrong = append(v.Wrong, fmt.Sprintf(format, args...))
}

func commonPrefix(a, b []int64) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
