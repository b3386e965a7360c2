package record

import "time"

// MaxWaiting is how many calls may wait, and MaxWaitingBytes is how many bytes of them.
const (
	MaxWaiting      = maxWaiting
	MaxWaitingBytes = int64(maxWaitingBytes)
)

// SetBudget lowers the bytes that may wait.
func (r *Recorder) SetBudget(most int64) { r.budget.Store(most) }

// Budget is how many more bytes may wait.
func (r *Recorder) Budget() int64 { return r.budget.Load() }

// Compose returns the text of the recording of a call, and what is read from it.
func Compose(o Options, question, answer string) (text string, got Recorded, err error) {
	c := &call{path: "/mutate/volumes", received: time.Now()}
	c.question.text, c.answer.text = []byte(question), []byte(answer)
	f, err := (&Recorder{options: o}).compose(c)
	if err != nil {
		return "", got, err
	}
	d, err := parse(f.text)
	if err != nil {
		return "", got, err
	}
	return string(f.text), Recorded{Review: &d.AdmissionReview, Circumstances: d.Own}, nil
}

// StoreAt stores recordings of calls that came at one moment.
func StoreAt(dir string, at time.Time, about string, texts ...string) error {
	f, err := openFolder(dir, len(texts), 1<<20)
	if err != nil {
		return err
	}
	defer f.close()
	for _, text := range texts {
		if err := f.put(&file{received: at, about: about, text: []byte(text)}); err != nil {
			return err
		}
	}
	return nil
}
