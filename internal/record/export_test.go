package record

// SetBudget lowers the bytes that may wait.
func (r *Recorder) SetBudget(most int64) { r.budget.most = most }

// Taken is how many bytes wait.
func (r *Recorder) Taken() int64 { return r.budget.taken.Load() }

// MostWaiting is how many calls may wait.
const MostWaiting = mostWaiting
