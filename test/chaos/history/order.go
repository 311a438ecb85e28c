package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// sight is how much of a final list an answer has shown.
type sight struct {
	length int
	at     time.Duration // when the answer came
}

// checkOrder looks for reads that go back in what is still there. What was lost is told of elsewhere.
func (v *Verdict) checkOrder(operations []Operation, final Final) {
	type answer struct {
		Operation
		key, length int
	}
	var answers []answer
	for _, o := range operations {
		if o.Outcome != Acknowledged {
			continue
		}
		for key, list := range o.Lists {
			answers = append(answers, answer{o, key, commonPrefix(list, final.Lists[key])})
		}
	}
	ended := slices.Clone(answers)
	slices.SortFunc(answers, func(a, b answer) int { return cmp.Compare(a.Begin, b.Begin) })
	slices.SortFunc(ended, func(a, b answer) int { return cmp.Compare(a.End, b.End) })
	longest := map[int][]sight{} // by list, growing
	own := map[[2]int]int{}      // by client and list
	for _, a := range answers {
		for len(ended) > 0 && ended[0].End < a.Begin {
			e := ended[0]
			ended = ended[1:]
			own[[2]int{e.Client, e.key}] = max(own[[2]int{e.Client, e.key}], e.length)
			if sights := longest[e.key]; len(sights) == 0 || sights[len(sights)-1].length < e.length {
				longest[e.key] = append(sights, sight{e.length, e.End})
			}
		}
		if had := own[[2]int{a.Client, a.key}]; a.length < had {
			v.Back = append(v.Back, fmt.Sprintf("client %d saw %d values of list %d at %s from %s, after it had seen %d",
				a.Client, a.length, a.key, a.End, a.Server, had))
			continue
		}
		for _, s := range longest[a.key] {
			if s.length <= a.length {
				continue
			}
			v.Stale = append(v.Stale, fmt.Sprintf("client %d saw %d values of list %d at %s from %s, others had seen %d at %s",
				a.Client, a.length, a.key, a.End, a.Server, s.length, s.at))
			v.StaleFor = max(v.StaleFor, a.Begin-s.at)
			break
		}
	}
}
