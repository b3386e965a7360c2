package record

// SetBudget lowers the bytes that may wait.
func (r *Recorder) SetBudget(most int64) { r.budget.Store(most) }

// Budget is how many more bytes may wait.
func (r *Recorder) Budget() int64 { return r.budget.Load() }

// MaxWaiting is how many calls may wait, and MaxWaitingBytes is how many bytes of them.
const (
	MaxWaiting      = maxWaiting
	MaxWaitingBytes = int64(maxWaitingBytes)
)
