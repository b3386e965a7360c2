package convert

// This file parses a ConversionReview in one pass, without decoding its objects.

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"code.cloudfoundry.org/eirinix/internal/jsontext"
	"code.cloudfoundry.org/eirinix/internal/list"
	"code.cloudfoundry.org/eirinix/internal/lograte"
)

const (
	reviewKind  = "ConversionReview"
	reviewGroup = "apiextensions.k8s.io"

	// longestUID bounds the uid that a caller can add to the answer. An API server's uid has 36 bytes.
	longestUID = 253
)

// Refusal is the error for a request that is no ConversionReview, or that another replica answers. The reason is
// bounded.
type Refusal struct {
	Status int // of HTTP
	Reason string
}

func (r *Refusal) Error() string { return r.Reason }

// HTTPStatus returns the status of the response.
func (r *Refusal) HTTPStatus() int { return r.Status }

func refuse(format string, args ...any) error {
	return &Refusal{Status: http.StatusBadRequest, Reason: bounded(fmt.Sprintf(format, args...))}
}

// bounded returns a text that is short enough for an answer.
func bounded(reason string) string { return lograte.Brief(reason, 500) }

// review is a parsed ConversionReview. Its texts are parts of the body.
type review struct {
	apiVersion []byte
	uid        []byte // in JSON, with its quotes
	desired    string
	objects    []object
}

// object is one object of a review, found but not decoded.
type object struct {
	text     []byte
	metadata metadata // nothing if there is none
	kind     string
	from     *version
	wrong    error // the object cannot be converted
}

// A reader is a Reader with the reason why it has failed.
type reader struct {
	jsontext.Reader
	reason error // nil if the text is malformed
}

func readerOf(text []byte) reader { return reader{Reader: jsontext.Reader{Text: text}} }

func (r *reader) fail(format string, args ...any) {
	if !r.Failed() {
		r.reason = fmt.Errorf(format, args...)
	}
	r.Fail()
}

// err returns the reason why the reader has failed, or nil.
func (r *reader) err() error {
	if r.Failed() && r.reason == nil {
		return errMalformed
	}
	return r.reason
}

var errMalformed = errors.New("it is not well-formed JSON, or it nests too deep")

// members calls use for each member of an object, which must read the value. It fails for a name that occurs twice.
func (r *reader) members(use func(name []byte)) {
	var names jsontext.Names
	for more := r.Enter('{'); more; more = r.More('{') {
		name := r.Name()
		if !names.Add(name) {
			r.fail("%q occurs twice", name)
		}
		if r.Failed() {
			return
		}
		use(name)
	}
}

// unquoted decodes a string.
func unquoted(text []byte) (string, bool) {
	if len(text) == 0 || text[0] != '"' {
		return "", false
	}
	r := readerOf(text)
	return string(r.String()), true
}

func isNull(text []byte) bool { return string(text) == "null" }

// A reviewParser parses one review.
type reviewParser struct {
	reader
	kind     *Kind
	versions []version
	review   review
	wrong    bool   // an object cannot be converted
	another  string // the apiVersion of an object that another replica converts
}

// parse returns the review, or a Refusal.
func (k *Kind) parse(body []byte, versions []version) (*review, error) {
	p := &reviewParser{reader: readerOf(body), kind: k, versions: versions}
	var kind, apiVersion, request []byte
	if p.Peek() != '{' {
		p.Fail()
	}
	p.members(func(name []byte) {
		switch string(name) {
		case "kind":
			kind = p.Value()
		case "apiVersion":
			apiVersion = p.Value()
		case "request":
			if p.Peek() == 'n' {
				p.Value()
				return
			}
			request = p.Text[p.At:]
			p.request()
		default:
			p.Value()
		}
	})
	if p.Peek() != 0 {
		p.Fail()
	}
	if err := p.err(); err != nil {
		return nil, refuse("the body is not a ConversionReview: %v", err)
	}
	if s, _ := unquoted(kind); s != reviewKind {
		return nil, refuse("the body is of kind %.100q; send a ConversionReview", s)
	}
	switch s, _ := unquoted(apiVersion); s {
	case reviewGroup + "/v1", reviewGroup + "/v1beta1":
		p.review.apiVersion = []byte(s)
	default:
		return nil, refuse("the body is a ConversionReview of %.100q; send one of %s/v1 or v1beta1", s, reviewGroup)
	}
	if request == nil {
		return nil, refuse("the ConversionReview holds no request")
	}
	if err := checkUID(p.review.uid); err != nil || p.another == "" {
		return &p.review, err
	}
	return nil, p.kind.askAnother(p.another)
}

func checkUID(text []byte) error {
	uid, ok := unquoted(text)
	switch {
	case text != nil && !ok && !isNull(text):
		return refuse("the ConversionReview's uid is not a string")
	case uid == "":
		return refuse("the ConversionReview's request has no uid")
	case len(uid) > longestUID:
		return refuse("the ConversionReview's uid has %d bytes; send one of at most %d", len(uid), longestUID)
	}
	return nil
}

func (p *reviewParser) request() {
	p.members(func(name []byte) {
		switch string(name) {
		case "uid":
			p.review.uid = p.Value()
		case "desiredAPIVersion":
			text := p.Value()
			s, ok := unquoted(text)
			if !ok && !isNull(text) {
				p.fail("desiredAPIVersion is not a string")
			}
			p.review.desired = s
		case "objects":
			for more := p.Enter('['); more; more = p.More('[') {
				p.object()
			}
		default:
			p.Value()
		}
	})
}

// object reads one object, if none before it is wrong.
func (p *reviewParser) object() {
	if p.wrong {
		p.Value()
		return
	}
	opening, start := p.Peek(), p.At
	if opening != '{' {
		text := p.Value()
		p.reject(fmt.Errorf("it is %.50s; send an object", text))
		return
	}
	o := object{}
	var apiVersion, kind []byte
	inner := p.reader
	inner.members(func(name []byte) {
		switch string(name) {
		case "apiVersion":
			apiVersion = inner.Value()
		case "kind":
			kind = inner.Value()
		case "metadata":
			o.metadata = inner.metadata()
		default:
			inner.Value()
		}
	})
	if err := inner.err(); err != nil {
		if p.Value(); !p.Failed() {
			p.reject(err)
		}
		return
	}
	p.At = inner.At
	o.text = p.Text[start:p.At:p.At]
	if o.wrong = p.identify(&o, apiVersion, kind); o.wrong != nil {
		p.wrong = true
	}
	p.review.objects = append(p.review.objects, o)
}

func (p *reviewParser) reject(reason error) {
	p.wrong = true
	p.review.objects = append(p.review.objects, object{wrong: reason})
}

// identify finds the version of an object, and checks its kind.
func (p *reviewParser) identify(o *object, apiVersion, kind []byte) error {
	if m := o.metadata.text; m != nil && m[0] != '{' {
		return errors.New("its metadata is not an object")
	}
	if string(kind) == `"`+p.kind.Kind+`"` {
		o.kind = p.kind.Kind
	} else {
		s, ok := unquoted(kind)
		if !ok || s == "" {
			return errors.New("it has no kind")
		}
		if o.kind = s; p.kind.Kind != "" && s != p.kind.Kind {
			return fmt.Errorf("its kind is %.100q; %s", s, p.kind.converts())
		}
	}
	if len(apiVersion) == 0 || apiVersion[0] != '"' {
		return errors.New("it has no apiVersion")
	}
	r := readerOf(apiVersion)
	s := r.String()
	for i := range p.versions {
		if v := &p.versions[i]; v.apiVersion == string(s) {
			o.from = v
			return nil
		}
	}
	if p.kind.elsewhere(string(s)) {
		p.another = string(s)
	}
	return fmt.Errorf("its apiVersion is %.100q; %s", s, p.kind.converts())
}

// converts is the part of a message that names the versions that there are.
func (k *Kind) converts() string {
	names := list.Of(k.Versions, func(v Version) string { return v.Name })
	kind := cmp.Or(k.Kind, "any kind")
	return fmt.Sprintf("the webhook converts %s of %s in the versions %s", kind, k.Group, strings.Join(names, ", "))
}
