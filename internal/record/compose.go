package record

// This file composes the text of a recording from a call.

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// These are the kinds of failures, by which log lines are counted.
const (
	incomplete  = "incomplete"
	notRedacted = "not redacted"
	onDisk      = "disk"
)

const mostError = 16 << 10 // bytes of the text of an error

// file is a recording to be written: the time of the call, the part of the file's name that describes the call, and the
// text.
type file struct {
	received time.Time
	about    string
	text     []byte
}

// compose makes the file of a call; nil if the program does not want it. It runs functions of the program, and turns
// a panic into an error.
func (r *Recorder) compose(c *call) (f *file, err error) {
	defer func() {
		if v := recover(); v != nil {
			f, err = nil, failed(notRedacted, "making the record panicked (%s)", withoutValues(v))
		}
	}()
	if c.broken {
		return nil, failed(incomplete, "the request did not arrive in full")
	}
	request := text(bytes.TrimSpace(c.question.text))
	if !json.Valid(request) {
		return nil, failed(incomplete, "the request is not JSON, or was not read to its end")
	}
	review, err := parseQuestion(request)
	if err != nil {
		return nil, err
	}
	if only := r.options.Only; only != nil && !only(review.Request) {
		return nil, nil
	}
	out := own{Path: c.path, Received: c.received.UTC(), Took: c.took.String(), Status: c.status}
	if out.Status == 0 {
		out.Status = http.StatusOK
	}
	response := responseOf(c.answer.text)
	secrets := &values{}

	d := &redaction{text: request}
	rules := d.redactRequest(request.all(), r.options.SecretData)
	request = request.edited(d.edits)
	out.Redacted = d.notes
	if !r.options.SecretData {
		secrets.add(d)
		var notes []string
		if response, notes, err = redactPatch(response, rules, secrets); err != nil {
			return nil, err
		}
		out.Redacted = append(out.Redacted, notes...)
	}
	if r.options.Redact != nil {
		h := &hooked{hook: r.options.Redact, request: request, response: response}
		if err := h.run(); err != nil {
			return nil, err
		}
		request, response = h.request, h.response
		out.Redacted = append(out.Redacted, h.notes...)
	}
	if response == nil {
		out.Error = errorText(secrets.scrubbed(string(c.answer.text)))
	}
	request, notes := secrets.scrubRequest(request)
	out.Redacted = append(out.Redacted, notes...)
	response, notes, err = secrets.scrubResponse(response, request)
	if err != nil {
		return nil, err
	}
	out.Redacted = append(out.Redacted, notes...)
	whole, err := join(request, response, out)
	return &file{received: out.Received, about: about(review.Request), text: whole}, err
}

// join appends the response and our own member to the members of the review.
func join(request text, response []byte, out own) ([]byte, error) {
	own, err := encode(out)
	if err != nil {
		return nil, err
	}
	end := request.all().end - len("}")
	whole := make([]byte, 0, len(request)+len(response)+len(own)+64)
	whole = append(whole, request[:end]...)
	if response != nil {
		whole = append(whole, `,"response":`...)
		whole = append(whole, response...)
	}
	whole = append(whole, `,"`+ownMember+`":`...)
	whole = append(whole, own...)
	return append(whole, "}\n"...), nil
}

// responseOf returns the response in an answer, byte for byte; nil if the answer is no review.
func responseOf(answer []byte) []byte {
	if !json.Valid(answer) {
		return nil
	}
	if review, err := parse(answer); err != nil || review.Response == nil {
		return nil
	}
	t := text(answer)
	var response []byte
	for m := range t.members(t.all()) {
		if t.word(m.name) == "response" {
			response = t.at(m.value)
		}
	}
	return response
}

func errorText(answer string) string {
	said := strings.TrimSpace(answer)
	if len(said) > mostError {
		said = said[:mostError] + "..."
	}
	return strings.ToValidUTF8(said, "?")
}
