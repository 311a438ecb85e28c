package history

import (
	"math"
	"time"

	"github.com/anishathalye/porcupine"
)

// decideTimeout bounds the search for an order of operations, which takes exponential time at worst.
const decideTimeout = 20 * time.Second

// registerCall is what is asked of a register.
type registerCall struct {
	swap  bool
	value int64
}

// registerAnswer is what it said.
type registerAnswer struct {
	known bool
	value int64
}

// register holds a value; a swap answers with what was there before, a read with what is there.
var register = porcupine.Model{
	Init: func() any { return int64(0) },
	Step: func(state, input, output any) (bool, any) {
		held, _ := state.(int64)
		call, _ := input.(registerCall)
		answer, _ := output.(registerAnswer)
		if answer.known && answer.value != held {
			return false, state
		}
		if call.swap {
			held = call.value
		}
		return true, held
	},
}

// checkRegisters wants an order in which the operations could have happened one by one, each between its begin and its
// end. That cannot be told any more of registers whose acknowledged swaps were lost, so a loss of appends ends it.
func (v *Verdict) checkRegisters(operations []Operation, final Final) {
	if len(v.Lost) > 0 {
		return
	}
	for key, calls := range registerHistories(operations, final) {
		switch porcupine.CheckOperationsTimeout(register, calls, decideTimeout) {
		case porcupine.Illegal:
			v.wrong("no order of the %d operations on register %d explains their answers", len(calls), key)
		case porcupine.Unknown:
			v.wrong("register %d could not be checked within %s", key, decideTimeout)
		}
	}
}

// registerHistories are the operations that say something, by register, each with a read of the final value after all.
// Left out are failed ones, reads without an answer, swaps without an answer whose value nobody saw, and stale reads of
// an earlier timeline.
func registerHistories(operations []Operation, final Final) map[int][]porcupine.Operation {
	seen := map[int64]bool{}
	for _, o := range operations {
		if o.Outcome == Acknowledged && (o.Kind == Swap || o.Kind == ReadRegister) {
			seen[o.Register] = true
		}
	}
	for _, value := range final.Registers {
		seen[value] = true
	}
	first := firstAcks(Acks(operations))
	histories := map[int][]porcupine.Operation{}
	for _, o := range operations {
		answered := o.Outcome == Acknowledged
		switch {
		case o.Kind != Swap && o.Kind != ReadRegister, o.Outcome == Failed:
			continue
		case !answered && (o.Kind == ReadRegister || !seen[o.Value]):
			continue
		case o.Kind == ReadRegister && outdated(o, first):
			continue
		}
		call := porcupine.Operation{
			ClientId: o.Client, Input: registerCall{swap: o.Kind == Swap, value: o.Value}, Call: int64(o.Begin),
			Output: registerAnswer{known: answered, value: o.Register}, Return: int64(o.End),
		}
		if !answered {
			call.Return = math.MaxInt64 // it may happen at any time after
		}
		histories[o.Keys[0]] = append(histories[o.Keys[0]], call)
	}
	for key, calls := range histories {
		end := int64(0)
		for _, call := range calls {
			if call.Return != math.MaxInt64 {
				end = max(end, call.Return)
			}
			end = max(end, call.Call)
		}
		histories[key] = append(calls, porcupine.Operation{
			ClientId: 0, Input: registerCall{}, Call: end + 1,
			Output: registerAnswer{known: true, value: final.Registers[key]}, Return: end + 2,
		})
	}
	return histories
}

// outdated tells whether a read began after a later timeline than the one it saw had acknowledged.
func outdated(o Operation, first map[reign]time.Duration) bool {
	for other, at := range first {
		if other.timeline > o.Timeline && at < o.Begin {
			return true
		}
	}
	return false
}
