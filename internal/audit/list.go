package audit

// This file lists the objects of a resource, page by page. A response is read as a stream, so that the memory holds one
// object at a time, whatever the size of a page.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"code.cloudfoundry.org/eirinix/internal/decode"
	"code.cloudfoundry.org/eirinix/internal/wait"
)

const (
	// pageTime bounds one list request, with the time that the steps take meanwhile. An API server ends a request after
	// a minute. The rest of the page is then requested again.
	pageTime = 90 * time.Second

	// patience bounds the time without any object while requests fail.
	patience = 2 * time.Minute

	// maxBytes bounds one object. A webhook is not called for larger ones either.
	maxBytes = 32 << 20

	// maxExpired bounds the number of expired continue tokens in a row.
	maxExpired = 5

	acceptObjects = "application/json"
	acceptLabels  = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
)

// lister sends requests for lists and for single objects, which share one rate.
type lister struct {
	client   rest.Interface
	rate     flowcontrol.RateLimiter
	pageSize int
	log      logr.Logger
	patience time.Duration
	pageTime time.Duration
}

// item is an object of a list.
type item struct {
	raw  json.RawMessage // as it is stored; built-in lists leave out apiVersion and kind
	head head
}

// head is the part of an object that identifies it.
type head struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Namespace string            `json:"namespace"`
		Name      string            `json:"name"`
		UID       types.UID         `json:"uid"`
		Labels    map[string]string `json:"labels"`
	} `json:"metadata"`
}

// key identifies an object in a list.
func (h *head) key() string {
	return strings.TrimPrefix(h.Metadata.Namespace+"/"+h.Metadata.Name, "/")
}

// listing is the state of one list.
type listing struct {
	*lister
	path, accept string
	each         func(context.Context, *item) error
	paged        func(remaining int64) // after each page; -1 if the API server did not announce the number

	token   string              // of the next page; empty for the first one
	done    map[string]struct{} // keys of the objects of that page that each has received
	expired int                 // tokens in a row
}

// list calls each with every object below a path, and paged after each page. An error of each ends it.
func (l *lister) list(ctx context.Context, path, accept string, each func(context.Context, *item) error, paged func(remaining int64)) error {
	s := &listing{lister: l, path: path, accept: accept, each: each, paged: paged, done: map[string]struct{}{}}
	for {
		p, err := s.nextPage(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case apierrors.IsResourceExpired(err):
			err = s.expire(err)
		case err == nil && p.complete:
			if err = s.turn(p); err == nil && s.token == "" {
				return nil
			}
		}
		if err != nil {
			return err
		}
	}
}

// nextPage requests a page until its response is complete or at least one new object of it was received. Requests that
// fail without an object are repeated, as long as that can help.
func (s *listing) nextPage(ctx context.Context) (*page, error) {
	var p *page
	err := s.request(ctx, "the list of "+s.path, func(limited context.Context) error {
		p = &page{listing: s, audited: ctx}
		err := p.get(limited)
		if p.received > 0 && ctx.Err() == nil && wait.Transient(err) {
			s.log.V(1).Info("a page broke off; requesting its rest", "path", s.path, "reason", err.Error())
			return nil
		}
		return err
	})
	return p, err
}

// request calls get until it succeeds, for as long as that can help. Each call waits for its turn, and has the time of a page.
func (l *lister) request(ctx context.Context, what string, get func(context.Context) error) error {
	patient, cancel := context.WithTimeout(ctx, l.patience)
	defer cancel()
	return wait.Retry(patient, l.log, what, func(context.Context) error {
		if err := l.rate.Wait(ctx); err != nil { // the context has ended, or would before the turn of this request
			return &endedError{fmt.Errorf("%w: %w", context.DeadlineExceeded, err)}
		}
		limited, cancel := context.WithTimeout(ctx, l.pageTime)
		defer cancel()
		return get(limited)
	})
}

// turn goes to the next page.
func (s *listing) turn(p *page) error {
	if s.token != "" && p.metadata.Continue == s.token {
		return &unreadableError{errors.New("the page names itself as the next one")}
	}
	s.token, s.expired = p.metadata.Continue, 0
	clear(s.done)
	remaining := int64(-1)
	switch n := p.metadata.RemainingItemCount; {
	case s.token == "":
		remaining = 0
	case n != nil:
		remaining = *n
	}
	if s.paged != nil {
		s.paged(remaining)
	}
	return nil
}

// expire goes on after a continue token that has expired, with the token of the answer. It continues the list in its
// present state.
func (s *listing) expire(err error) error {
	status, ok := err.(apierrors.APIStatus) //nolint:errorlint // client-go returns it bare
	if s.expired++; s.expired > maxExpired || !ok || status.Status().Continue == "" {
		return err
	}
	s.log.V(1).Info("a list expired; it goes on in its present state", "path", s.path)
	s.token = status.Status().Continue
	return nil
}

// receive passes an object on, unless that has happened before. nth distinguishes the objects of a page that have no
// name, because they cannot be read.
func (s *listing) receive(ctx context.Context, i *item, nth int) (isNew bool, err error) {
	key := i.head.key()
	if key == "" {
		key = nameless + strconv.Itoa(nth)
	}
	if _, seen := s.done[key]; seen {
		return false, nil
	}
	if err := s.each(ctx, i); err != nil {
		return true, &endedError{err}
	}
	s.done[key] = struct{}{}
	return true, nil
}

// nameless begins the keys of objects without a name. No name has it.
const nameless = "\x00"

// endedError is the error of the receiver of objects, which ends a list. It hides the error from the retries.
type endedError struct{ err error }

func (e *endedError) Error() string { return e.err.Error() }

// unreadableError is the error for a response that is not the JSON of a list.
type unreadableError struct{ err error }

func (e *unreadableError) Error() string {
	return "the response is not a list in JSON: " + e.err.Error()
}
func (e *unreadableError) Unwrap() error { return e.err }

// page is one response.
type page struct {
	*listing
	audited  context.Context // of the audit; the request has a shorter one
	body     *body
	metadata struct {
		Continue           string `json:"continue"`
		RemainingItemCount *int64 `json:"remainingItemCount"`
	}
	objects  int // that were read
	received int // of these, those that were new
	complete bool
}

// get requests the page and reads it to its end.
func (p *page) get(ctx context.Context) error {
	request := p.client.Get().AbsPath(p.path).SetHeader("Accept", p.accept).Param("limit", strconv.Itoa(p.pageSize)).MaxRetries(0)
	if p.token != "" {
		request = request.Param("continue", p.token)
	}
	stream, err := request.Stream(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	p.body = &body{Reader: stream}
	return p.explain(p.read(json.NewDecoder(p.body)))
}

// explain distinguishes the errors of reading: a connection that broke, and text that is not a list.
func (p *page) explain(err error) error {
	if err == nil {
		return nil
	}
	if ended, ok := errors.AsType[*endedError](err); ok {
		return ended
	}
	broken := p.body.err
	if errors.Is(broken, errTooLarge) {
		return &unreadableError{broken}
	}
	if broken == nil && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) {
		broken = io.ErrUnexpectedEOF
	}
	if broken != nil {
		// The text of the cause is enough: not every cause looks as if a retry could help.
		return &url.Error{Op: http.MethodGet, URL: p.path, Err: errors.New("the response broke off: " + broken.Error())}
	}
	return &unreadableError{err}
}

// read reads the list member by member.
func (p *page) read(d *json.Decoder) error {
	if err := expect(d, json.Delim('{')); err != nil {
		return err
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		switch name {
		case "metadata":
			err = d.Decode(&p.metadata)
		case "items":
			err = p.items(d)
		default:
			err = d.Decode(new(json.RawMessage))
		}
		if err != nil {
			return err
		}
	}
	if err := expect(d, json.Delim('}')); err != nil {
		return err
	}
	p.complete = true
	return nil
}

// items reads the objects one by one.
func (p *page) items(d *json.Decoder) error {
	first, err := d.Token()
	if err != nil || first == nil { // null
		return err
	}
	if first != json.Delim('[') {
		return fmt.Errorf("its items begin with %v", first)
	}
	for d.More() {
		i := &item{}
		if err := d.Decode(&i.raw); err != nil {
			return err
		}
		p.body.read = 0
		// An object that cannot be read has no name. Its receiver reports that.
		if decode.Into(i.raw, &i.head) != nil {
			i.head = head{}
		}
		p.objects++
		isNew, err := p.receive(p.audited, i, p.objects)
		if isNew {
			p.received++
		}
		if err != nil {
			return err
		}
	}
	return expect(d, json.Delim(']'))
}

func expect(d *json.Decoder, delimiter json.Delim) error {
	got, err := d.Token()
	if err == nil && got != delimiter {
		err = fmt.Errorf("%v stands in place of %v", got, delimiter)
	}
	return err
}

// body keeps the error of a response's body, and bounds the size of one object.
type body struct {
	io.Reader
	read int64 // bytes of the present object
	err  error
}

var errTooLarge = fmt.Errorf("an object is larger than %d MiB", maxBytes>>20)

func (b *body) Read(p []byte) (int, error) {
	if b.read > maxBytes {
		b.err = errTooLarge
		return 0, b.err
	}
	n, err := b.Reader.Read(p)
	b.read += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		b.err = err
	}
	return n, err
}
