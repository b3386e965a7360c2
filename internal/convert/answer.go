package convert

// This file makes the answer to a review, and isolates it from conversions that panic.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A Room takes memory for one object, and waits for it until the context ends. release gives it back.
type Room = func(ctx context.Context, bytes int64) (release func(), err error)

// perByte is how many bytes an object takes for each byte of its JSON: its source, its copy, the result, the way back
// and the trees that are compared are held at once. Measured with all garbage: 4 to 50, and 74 if a Go type loses a member
// of each item.
const perByte = 40

// Answer converts the objects of a ConversionReview and returns the ConversionReview that answers it. The answer keeps
// no reference to the review. The only error is a *Refusal, for a request that is no ConversionReview or that
// another replica answers. If an object cannot be converted, the answer says so.
//
// Objects are converted one after the other, and only one of them is decoded at a time. The context is checked between
// conversions, so Answer can return late if a conversion ignores it. A conversion that ends its goroutine ends Answer's.
// A nil room bounds nothing.
func (k *Kind) Answer(ctx context.Context, body []byte, room Room) ([]byte, error) {
	versions, hub := k.versions()
	rev, err := k.parse(body, versions)
	if err != nil {
		return nil, err
	}
	c := &call{Kind: k, ctx: ctx, room: room, review: rev, hub: hub, observer: cmp.Or[Observer](k.Observer, unobserved{})}
	for i := range versions {
		if versions[i].apiVersion == rev.desired {
			c.to = &versions[i]
		}
	}
	switch {
	case c.to != nil:
		err = c.objects(len(body))
	case k.elsewhere(rev.desired):
		return nil, k.askAnother(rev.desired)
	default:
		err = fmt.Errorf("desiredAPIVersion is %.100q; %s", rev.desired, k.converts())
	}
	if err != nil {
		return c.failure(err), nil
	}
	return c.answer, nil
}

// elsewhere reports whether another replica converts the version.
func (k *Kind) elsewhere(apiVersion string) bool {
	version, ok := strings.CutPrefix(apiVersion, k.Group+"/")
	return ok && slices.Contains(k.Elsewhere, version)
}

func (k *Kind) askAnother(apiVersion string) error {
	return &Refusal{Status: http.StatusServiceUnavailable, Reason: fmt.Sprintf("%s is converted by another version of the program; %s", apiVersion, k.converts())}
}

// call is the answering of one review.
type call struct {
	*Kind
	ctx    context.Context
	room   Room
	review *review
	hub    *version
	to     *version

	observer Observer

	at      int // index of the object that is being converted
	answer  []byte
	scratch []byte // of the current object
}

// objects writes the whole answer.
func (c *call) objects(size int) error {
	c.answer = c.begin(make([]byte, 0, 256+size+size/8))
	c.answer = append(c.answer, `"convertedObjects":[`...)
	for c.at = range c.review.objects {
		if err := c.ctx.Err(); err != nil {
			return c.late(err)
		}
		o := &c.review.objects[c.at]
		if o.wrong != nil {
			return c.failed(o.wrong)
		}
		if c.at > 0 {
			c.answer = append(c.answer, ',')
		}
		if err := c.object(o); err != nil {
			if c.ctx.Err() != nil && errors.Is(err, c.ctx.Err()) {
				return c.late(err)
			}
			return c.failed(err)
		}
	}
	c.answer = append(c.answer, `],"result":{"metadata":{},"status":"Success"}}}`...)
	return nil
}

// begin appends the answer up to its uid.
func (c *call) begin(dst []byte) []byte {
	dst = append(dst, `{"kind":"ConversionReview","apiVersion":"`...)
	dst = append(dst, c.review.apiVersion...)
	dst = append(dst, `","response":{"uid":`...)
	return append(append(dst, c.review.uid...), ',')
}

// failure returns an answer that says why the objects are not converted.
func (c *call) failure(reason error) []byte {
	text, err := json.Marshal(metav1.Status{Status: metav1.StatusFailure, Message: reason.Error(), Reason: metav1.StatusReasonInvalid})
	if err != nil {
		text = []byte(`{"status":"Failure"}`)
	}
	dst := append(c.begin(nil), `"convertedObjects":[],"result":`...)
	return append(append(dst, text...), "}}"...)
}

func (c *call) late(err error) error {
	return c.observed(fmt.Errorf("the call ended at object %d: %w; make the conversion faster", c.at, err))
}

// failed names the current object.
func (c *call) failed(reason error) error {
	o := &c.review.objects[c.at]
	from := cmp.Or(c.from(), "an unknown version")
	return c.observed(fmt.Errorf("object %d (%s) from %s to %s: %s", c.at, o.name(), from, c.to.Name, bounded(reason.Error())))
}

func (c *call) observed(err error) error {
	c.observer.Failed(c.from(), c.to.Name, err)
	return err
}

// from returns the name of the current object's version.
func (c *call) from() string {
	if c.at < len(c.review.objects) && c.review.objects[c.at].from != nil {
		return c.review.objects[c.at].from.Name
	}
	return ""
}

func (c *call) panicked(value any) error {
	c.observer.Panicked(c.from(), c.to.Name, value, debug.Stack())
	return fmt.Errorf("the conversion panicked: %v", value)
}

func (c *call) ignored(reason error)    { c.observer.Ignored(c.from(), c.to.Name, reason) }
func (c *call) incomplete(reason error) { c.observer.Incomplete(c.from(), c.to.Name, reason) }

// name returns the kind, the namespace and the name of an object, as far as they can be read.
func (o *object) name() string {
	var namespace, name string
	r := readerOf(o.metadata.text)
	r.members(func(member []byte) {
		switch text := r.Value(); string(member) {
		case "namespace":
			namespace, _ = unquoted(text)
		case "name":
			name, _ = unquoted(text)
		case "generateName":
			if s, _ := unquoted(text); name == "" && s != "" {
				name = s + "*"
			}
		}
	})
	kind := o.kind
	if kind == "" {
		kind = "of unknown kind"
	}
	if namespace != "" {
		name = namespace + "/" + name
	}
	if name == "" {
		name = "without name"
	}
	return fmt.Sprintf("%.100s %.330s", kind, name)
}

// object appends one object to the answer. A panic becomes an error.
func (c *call) object(o *object) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = c.panicked(value)
		}
	}()
	if o.from == c.to {
		c.answer = append(c.answer, o.text...)
		return nil
	}
	if c.room != nil {
		release, err := c.room(c.ctx, perByte*int64(len(o.text)))
		if err != nil {
			return err
		}
		defer release()
	}
	v := conversion{call: c, kind: o.kind}
	if c.answer, err = v.object(c.answer, o); err != nil {
		return err
	}
	c.observer.Converted(o.from.Name, c.to.Name)
	return nil
}
