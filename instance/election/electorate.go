package election

import "slices"

// Electorate are the members that could elect another holder, as the present one has to reckon: those of every write
// of the Lease that may have arrived. All of them but itself have to agree to a HoldRequest. Its zero value is nobody.
type Electorate struct {
	members []string
}

// Writing must be called before the holder writes the Lease with members.
func (e *Electorate) Writing(members []string) {
	for _, member := range members {
		if !slices.Contains(e.members, member) {
			e.members = append(e.members, member)
		}
	}
}

// Is tells that the Lease is known to have members, because a write succeeded: none before it can come into force any
// more.
func (e *Electorate) Is(members []string) { e.members = slices.Clone(members) }

// Others are all but self.
func (e *Electorate) Others(self string) []string {
	return slices.DeleteFunc(slices.Clone(e.members), func(member string) bool { return member == self })
}
