package runner

// bell wakes whoever receives from it. One that was rung and not heard yet stands for any number of reasons.
type bell chan struct{}

func newBell() bell { return make(bell, 1) }

func (b bell) ring() {
	select {
	case b <- struct{}{}:
	default:
	}
}
