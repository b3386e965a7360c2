package convert

// This file parses a ConversionReview in one pass, without decoding its objects.

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"code.cloudfoundry.org/eirinix/internal/jsontext"
	"code.cloudfoundry.org/eirinix/internal/lograte"
)

const (
	reviewKind  = "ConversionReview"
	reviewGroup = "apiextensions.k8s.io"

	// longestUID bounds the uid that a caller can add to the answer. An API server's uid has 36 bytes.
	longestUID = 253

	// maxNesting is how deep a review can nest, as in encoding/json.
	maxNesting = 10000
)

// Refusal is the error for a request that is no ConversionReview, or that another replica answers. The reason is
// bounded.
type Refusal struct {
	Status int // of HTTP
	Reason string
}

func (r *Refusal) Error() string { return r.Reason }

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
	count      int // of objects, including those behind the first that is wrong
}

// object is one object of a review, found but not decoded.
type object struct {
	text     []byte
	metadata metadataText // nothing if there is none
	kind     string
	from     *version
	wrong    error // the object cannot be converted
}

// mostNamed is the number of members of an object that are compared one by one.
const mostNamed = 32

// A reader reads JSON from front to back. The first error stays.
type reader struct {
	text []byte
	at   int
	err  error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
	r.at = -1
}

// peek returns the first byte of the next token, or 0 at the end.
func (r *reader) peek() byte {
	if r.at = jsontext.SkipSpace(r.text, r.at); uint(r.at) < uint(len(r.text)) {
		return r.text[r.at]
	}
	return 0
}

// enter goes to the first member or item, and reports whether there is one.
func (r *reader) enter(opening byte) bool {
	r.peek()
	next, more := jsontext.First(r.text, r.at, opening)
	if r.at = next; next < 0 {
		r.malformed()
	}
	return more
}

// more goes to the next member or item, and reports whether there is one.
func (r *reader) more(opening byte) bool {
	next, more := jsontext.Next(r.text, r.at, opening+2)
	if r.at = next; next < 0 {
		r.malformed()
	}
	return more
}

func (r *reader) malformed() { r.fail("it is not well-formed JSON, or it nests too deep") }

// name reads the name of a member and its colon.
func (r *reader) name() []byte {
	name, plain, end := jsontext.Text(r.text, r.at)
	if !plain {
		name = []byte(jsontext.Unquote(name))
	}
	if r.at = jsontext.Colon(r.text, end); r.at < 0 {
		r.malformed()
	}
	return name
}

// value reads any value and returns its text.
func (r *reader) value() []byte {
	r.peek()
	end := jsontext.SkipValue(r.text, r.at, maxNesting)
	if end < 0 {
		r.malformed()
		return nil
	}
	text := r.text[r.at:end:end]
	r.at = end
	return text
}

// members calls use for each member of an object, which must read the value. It fails for a name that occurs twice.
func (r *reader) members(use func(name []byte)) {
	var few [mostNamed][]byte
	var many map[string]bool
	n := 0
	for more := r.enter('{'); more; more = r.more('{') {
		name := r.name()
		for _, other := range few[:min(n, mostNamed)] {
			if bytes.Equal(name, other) {
				r.fail("%q occurs twice", name)
			}
		}
		if n < mostNamed {
			few[n] = name
		} else if many == nil {
			many = map[string]bool{string(name): true}
		} else if many[string(name)] {
			r.fail("%q occurs twice", name)
		} else {
			many[string(name)] = true
		}
		n++
		if r.err == nil {
			use(name)
		}
		if r.err != nil {
			return
		}
	}
}

// unquoted decodes a string.
func unquoted(text []byte) (string, bool) {
	inside, plain, end := jsontext.Text(text, 0)
	if end != len(text) || end < 0 {
		return "", false
	}
	if plain {
		return string(inside), true
	}
	return jsontext.Unquote(inside), true
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
	p := &reviewParser{reader: reader{text: body}, kind: k, versions: versions}
	var kind, apiVersion, request []byte
	p.members(func(name []byte) {
		switch string(name) {
		case "kind":
			kind = p.value()
		case "apiVersion":
			apiVersion = p.value()
		case "request":
			if p.peek() == 'n' {
				p.value()
				return
			}
			request = p.text[p.at:]
			p.request()
		default:
			p.value()
		}
	})
	if p.err == nil && p.peek() != 0 {
		p.malformed()
	}
	if p.err != nil {
		return nil, refuse("the body is not a ConversionReview: %v", p.err)
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
			p.review.uid = p.value()
		case "desiredAPIVersion":
			text := p.value()
			s, ok := unquoted(text)
			if !ok && !isNull(text) {
				p.fail("desiredAPIVersion is not a string")
			}
			p.review.desired = s
		case "objects":
			if p.peek() == 'n' {
				p.value()
				return
			}
			for more := p.enter('['); more; more = p.more('[') {
				p.object()
			}
		default:
			p.value()
		}
	})
}

// object reads one object. Behind the first that is wrong, objects are only counted.
func (p *reviewParser) object() {
	p.review.count++
	if p.wrong {
		p.value()
		return
	}
	opening, start := p.peek(), p.at
	if opening != '{' {
		text := p.value()
		p.reject(fmt.Errorf("it is %.50s; send an object", text))
		return
	}
	o := object{}
	var apiVersion, kind []byte
	inner := reader{text: p.text, at: p.at}
	inner.members(func(name []byte) {
		switch string(name) {
		case "apiVersion":
			apiVersion = inner.value()
		case "kind":
			kind = inner.value()
		case "metadata":
			o.metadata = inner.metadata()
		default:
			inner.value()
		}
	})
	if inner.err != nil {
		end := jsontext.SkipValue(p.text, start, maxNesting)
		if end < 0 {
			p.malformed()
			return
		}
		p.at = end
		p.reject(inner.err)
		return
	}
	p.at = inner.at
	o.text = p.text[start:p.at:p.at]
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
	s, plain, end := jsontext.Text(apiVersion, 0)
	if end < 0 {
		return errors.New("it has no apiVersion")
	}
	if !plain {
		s = []byte(jsontext.Unquote(s))
	}
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
	names := make([]string, len(k.Versions))
	for i := range k.Versions {
		names[i] = k.Versions[i].Name
	}
	kind := k.Kind
	if kind == "" {
		kind = "any kind"
	}
	return fmt.Sprintf("the webhook converts %s of %s in the versions %s", kind, k.Group, strings.Join(names, ", "))
}
