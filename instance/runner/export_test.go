package runner

import "time"

// Hurry has a runner believe sooner that a replica hangs, or is behind.
func (r *Runner) Hurry() { r.bounds = bounds{hungLooks: 4, maxAge: 2 * time.Second} }
