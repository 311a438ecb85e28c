// Package history checks what clients of a database were told against what the
// database holds in the end. It is pure: operations in, verdict out.
//
// The clients append values to lists and swap values in registers. No value is
// used twice, so each says which write it came from.
package history

import "time"

// Outcome is what a client knows of an operation.
type Outcome int

const (
	// Unknown: no answer, or one that does not tell, such as a commit that stopped waiting for its replicas.
	Unknown Outcome = iota
	// Acknowledged: the database said that it is done.
	Acknowledged
	// Failed: the database said that it is not done, or was never asked.
	Failed
)

// Kind of an operation.
type Kind int

const (
	// Append adds Value to the end of the lists Keys in one transaction.
	Append Kind = iota
	// ReadList reads the list Keys[0].
	ReadList
	// Swap writes Value into the register Keys[0] and reads what was there.
	Swap
	// ReadRegister reads the register Keys[0].
	ReadRegister
)

// Operation is one transaction of one client.
type Operation struct {
	// Client that asked; its operations follow one another.
	Client int
	Kind   Kind
	// Keys of what was read or written.
	Keys []int
	// Value that was written.
	Value   int64
	Outcome Outcome
	// Begin and End by one monotonic clock; an answer that came has come at End.
	Begin, End time.Duration
	// Timeline and Server that answered, 0 and "" if none did; Timeline is also 0 if a replica did.
	Timeline uint32
	Server   string
	// Lists as they were seen, by key: an Append's with its own value.
	Lists map[int][]int64
	// Register as it was seen: a Swap's before it wrote.
	Register int64
	// Error of an operation that was not acknowledged.
	Error string
}

// Writes tells whether the operation changes anything.
func (o Operation) Writes() bool { return o.Kind == Append || o.Kind == Swap }

// Final is what the database holds after all operations. A register without a value holds 0.
type Final struct {
	Lists     map[int][]int64
	Registers map[int]int64
}

// Verdict is what a history proves. Safe says which of it may not be.
type Verdict struct {
	// Acknowledged, Failed and Unknown count the writes.
	Acknowledged, Failed, Unknown int
	// Lost are acknowledged appends that are not there; a loss is the end of a list, never its middle.
	Lost []string
	// Vanished were read by somebody, never acknowledged, and are not there.
	Vanished []string
	// Wrong is all that no failover explains: an update that swallowed another, a value that is there twice, or though
	// it failed, or in one list of a transaction and not in the other, a register that no order of operations explains.
	Wrong []string
	// Back are reads that miss what the same client had seen, and which is still there.
	Back []string
	// Stale are reads, of one server, that miss what was acknowledged to another client before they began.
	Stale []string
	// StaleFor is the longest time between such an acknowledgement and the begin of such a read.
	StaleFor time.Duration
	// TwoWriters is how long one server went on to acknowledge after another had begun to.
	TwoWriters time.Duration
	// Timelines that acknowledged writes.
	Timelines []uint32
}

// Check judges a history. Operations may be in any order.
func Check(operations []Operation, final Final) Verdict {
	v := Verdict{}
	for _, o := range operations {
		switch {
		case !o.Writes():
		case o.Outcome == Acknowledged:
			v.Acknowledged++
		case o.Outcome == Failed:
			v.Failed++
		default:
			v.Unknown++
		}
	}
	v.checkAppends(operations, final)
	v.checkOrder(operations, final)
	v.checkRegisters(operations, final)
	acks := Acks(operations)
	v.TwoWriters = TwoWriters(acks)
	v.Timelines = timelines(acks)
	return v
}
