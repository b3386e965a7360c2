package record

// This file makes the text of a recording from a call: it decodes the call into trees of JSON, lets them be redacted,
// and encodes them.

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"runtime"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix/internal/jsontext"
	"code.cloudfoundry.org/eirinix/internal/patch"
	"code.cloudfoundry.org/eirinix/internal/snapshots"
)

// file is a recording to be written.
type file struct {
	received time.Time
	about    string // the part of the file's name that describes the call
	text     []byte
}

// compose makes the file of a call; nil if the program does not want it.
func (r *Recorder) compose(c *call) (_ *file, err error) {
	defer contain("making the record", &err)
	if c.broken {
		return nil, failed("incomplete", "the request did not arrive in full")
	}
	question, err := parse(c.question.text)
	if err != nil {
		return nil, err
	}
	if question.Request == nil {
		return nil, failed("no review", "the AdmissionReview holds no request")
	}
	if only := r.options.Only; only != nil && !only(question.Request.DeepCopy()) {
		return nil, nil
	}
	x := &exchange{error: string(c.answer.text)}
	if err := x.decode(c, question); err != nil {
		return nil, err
	}
	if x.reads, x.readsLeftOut, err = c.reads.recorded(); err != nil {
		return nil, err
	}
	f := &file{received: c.received.UTC(), about: about(question.Request, x.request["object"])}
	if !r.options.SecretData {
		x.redact()
	}
	if err := x.runHook(r.options.Redact); err != nil {
		return nil, err
	}
	x.scrub()
	if err := x.renewPatch(); err != nil {
		return nil, err
	}
	recording := map[string]any{"kind": question.Kind, "apiVersion": question.APIVersion, "request": x.request}
	recording["eirinix"] = Circumstances{
		Path: c.path, Received: f.received, Took: metav1.Duration{Duration: c.took}, Status: cmp.Or(c.status, http.StatusOK),
		Error: brief(strings.TrimSpace(x.error), 16<<10), TraceID: c.trace, Redacted: x.notes,
		Reads: x.reads, ReadsLeftOut: x.readsLeftOut,
	}
	if x.response != nil {
		recording["response"] = x.response
	}
	f.text, err = encode(recording)
	return f, err
}

// exchange is a call as trees of JSON: map[string]any, []any, string, json.Number, bool and nil. They are redacted in
// place.
type exchange struct {
	redaction
	request  map[string]any // without members of the review that are not known
	response map[string]any // nil if the answer is no review
	error    string         // the answer that is no review

	reads        []snapshots.Recorded // what the steps have read; nil if they could not, or if it is left out
	readsLeftOut string               // why

	// The patch is redacted by its result. If anything was redacted, a new patch is made between the redacted objects.
	// So it applies to the recorded object as the patch of the response did to the object.
	operations any            // nil if there is no patch
	patched    map[string]any // the object after the patch
	unpatched  error          // why there is none, although there is a patch
	hooked     bool           // the hook has changed something
}

func (x *exchange) decode(c *call, question *document) error {
	var asked, said map[string]any
	if err := decode(c.question.text, &asked); err != nil {
		return err
	}
	x.request, _ = asked["request"].(map[string]any)
	answer, err := parse(c.answer.text)
	if err != nil || answer.Response == nil || decode(c.answer.text, &said) != nil {
		return nil //nolint:nilerr // the answer is recorded as a text
	}
	x.response, _ = said["response"].(map[string]any)
	x.error = ""
	operations := answer.Response.Patch
	if len(operations) == 0 {
		return nil
	}
	if decode(operations, &x.operations) != nil {
		x.operations = string(operations)
	}
	if _, isObject := x.request["object"].(map[string]any); !isObject {
		x.unpatched = errors.New("there is no object")
		return nil
	}
	made, count, err := patch.Apply(question.Request.Object.Raw, operations)
	if err == nil && count > 0 {
		err = decode(made, &x.patched)
	} else if err == nil {
		x.operations = nil
	}
	x.unpatched = err
	return nil
}

// redact redacts the Secrets and tokens in a call, and the annotations that can be copies of them.
func (x *exchange) redact() {
	for _, path := range kindsOfRequest {
		kind, _, _ := unstructured.NestedString(x.request, path...)
		list := lists[strings.ToLower(kind)]
		if list == nil {
			continue
		}
		for _, name := range []string{"object", "oldObject"} {
			if object := x.request[name]; object != nil {
				x.request[name] = x.keep(object, list, below("request", name))
			}
		}
		if x.patched != nil {
			x.keep(x.patched, list, "")
		}
	}
	x.walk(x.request, "request", false)
	x.walk(x.patched, "", false)
	x.walk(x.operations, "", true)
	x.eachRead(func(object map[string]any, at string) map[string]any {
		x.walk(object, at, false)
		return object
	})
	if x.holdsSecret {
		s := newScrubber(x.removed) // the name of an annotation can repeat a value
		for _, drop := range x.copies {
			drop(s)
		}
	}
}

// eachRead replaces each object that a step has read.
func (x *exchange) eachRead(change func(object map[string]any, at string) map[string]any) {
	for i, one := range x.reads {
		for n, object := range one.Objects {
			one.Objects[n] = change(object, fmt.Sprintf("eirinix.reads[%d].objects[%d]", i, n))
		}
	}
}

// runHook runs the hook of the program on the objects, until it fails.
func (x *exchange) runHook(hook func(map[string]any)) (err error) {
	if hook == nil {
		return nil
	}
	if x.unpatched != nil {
		return failed("not redacted", "Redact cannot be shown the object after the patch of the response: %w", x.unpatched)
	}
	hooked := false
	run := func(object map[string]any, at string) (after map[string]any) {
		changed := false
		if err == nil {
			after, changed, err = show(hook, object)
		}
		if changed && at != "" {
			x.notes.add(at + " (by Redact)")
		}
		hooked = hooked || changed
		return after
	}
	for _, name := range []string{"object", "oldObject"} {
		if object, ok := x.request[name].(map[string]any); ok {
			x.request[name] = run(object, "request."+name)
		}
	}
	if x.patched != nil {
		x.patched = run(x.patched, "")
	}
	x.hooked = hooked // what was read has no part in the patch
	x.eachRead(run)
	return err
}

// show runs the hook on an object. It returns a copy of the object after the hook.
func show(hook func(map[string]any), object map[string]any) (after map[string]any, changed bool, err error) {
	defer contain("Redact", &err)
	before, err := encode(object)
	if err != nil {
		return nil, false, err
	}
	hook(object)
	text, err := encode(object)
	if err != nil {
		return nil, false, failed("not redacted", "Redact left an object that is not JSON: %w", err)
	}
	return after, !bytes.Equal(before, text), decode(text, &after)
}

// scrub removes the redacted values from the other texts of a call.
func (x *exchange) scrub() {
	s := newScrubber(x.removed)
	if s == nil {
		return
	}
	s.members(x.request, "request", stayInRequest, &x.notes)
	s.members(x.response, "response", stayInResponse, &x.notes)
	s.value(x.patched, "object", false)
	x.error = s.text(x.error)
	x.eachRead(func(object map[string]any, at string) map[string]any {
		s.members(object, at, stayInRead, &x.notes)
		return object
	})
	for _, one := range x.reads {
		for step, why := range one.Failed {
			one.Failed[step] = s.text(why)
		}
	}
	x.readsLeftOut = s.text(x.readsLeftOut)
}

// renewPatch replaces the patch of the response if anything was redacted.
func (x *exchange) renewPatch() error {
	if x.operations == nil || !x.holdsSecret && !x.hooked && len(x.removed) == 0 {
		return nil
	}
	object, _ := x.request["object"].(map[string]any)
	raw, err := encode(object)
	var anew patch.Patch
	if err = cmp.Or(x.unpatched, err); err == nil {
		anew, err = patch.Compare(raw, jsontext.Index{}, object, x.patched)
	}
	if err != nil {
		return failed("not redacted", "the patch of the response cannot be redacted: %w", err)
	}
	x.response["patch"] = base64.StdEncoding.EncodeToString(anew.AppendJSON(nil))
	x.notes.add("response.patch (made anew)")
	return nil
}

// decode decodes a text, and keeps the text of numbers. Its error holds no part of the text.
func decode[T any](raw []byte, into *T) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("the JSON cannot be decoded as %s", reflect.TypeFor[T]())
	}
	return nil
}

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// contain turns a panic into an error. The panic's value can hold parts of the object, so only its type is shown. A
// runtime error holds none.
func contain(function string, err *error) {
	switch v := recover().(type) {
	case nil:
	case runtime.Error:
		*err = failed("not redacted", "%s panicked (%v)", function, v)
	default:
		*err = failed("not redacted", "%s panicked (with a %T)", function, v)
	}
}
