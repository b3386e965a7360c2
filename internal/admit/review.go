package admit

// This file parses an AdmissionReview without decoding its objects.

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"code.cloudfoundry.org/eirinix/internal/jsontext"
)

const (
	reviewKind      = "AdmissionReview"
	reviewGroup     = "admission.k8s.io"
	contentTypeJSON = "application/json"

	// longestUID bounds the uid that a caller can add to the answer. An API server's uid has 36 bytes.
	longestUID = 253
)

// decodedReview is an AdmissionReview of either version. v1 and v1beta1 requests have the same members, and the answers
// do not differ in the fields that are sent.
type decodedReview struct {
	metav1.TypeMeta `json:",inline"`
	Request         *decodedRequest `json:"request,omitempty"`
}

// decodedRequest is an AdmissionRequest whose objects are parts of the text that it was read from, because they can be
// large.
type decodedRequest struct {
	admissionv1.AdmissionRequest `json:",inline"`

	Object    part `json:"object,omitempty"`
	OldObject part `json:"oldObject,omitempty"`
	Options   part `json:"options,omitempty"`
}

// part holds the text of a RawExtension without a copy. The decoder passes a part of its own text, which nothing
// changes.
type part []byte

func (p *part) UnmarshalJSON(text []byte) error {
	if string(text) != "null" {
		*p = text[:len(text):len(text)]
	}
	return nil
}

func decodeReview(body []byte) (*review, error) {
	var rev decodedReview
	if err := kjson.UnmarshalCaseSensitivePreserveInts(body, &rev); err != nil {
		return nil, refuse(http.StatusBadRequest, "the body is not an AdmissionReview: %v", err)
	}
	req := cmp.Or(rev.Request, new(decodedRequest))
	r := &req.AdmissionRequest
	r.Object.Raw, r.OldObject.Raw, r.Options.Raw = req.Object, req.OldObject, req.Options
	if err := checkReview(rev.TypeMeta, r, rev.Request != nil); err != nil {
		return nil, err
	}
	return &review{typeMeta: rev.TypeMeta, request: *r}, nil
}

// checkReview refuses a review that no API server sends. has reports whether it has a request.
func checkReview(t metav1.TypeMeta, req *admissionv1.AdmissionRequest, has bool) error {
	switch {
	case t.Kind != reviewKind, t.APIVersion != reviewGroup+"/v1" && t.APIVersion != reviewGroup+"/v1beta1":
		return refuse(http.StatusBadRequest, "the body is a %s of %q; send an AdmissionReview of %s/v1 or v1beta1",
			cmp.Or(t.Kind, "document without kind"), t.APIVersion, reviewGroup)
	case !has:
		return refuse(http.StatusBadRequest, "the AdmissionReview holds no request")
	case req.UID == "":
		return refuse(http.StatusBadRequest, "the AdmissionReview's request has no uid")
	case len(req.UID) > longestUID:
		return refuse(http.StatusBadRequest,
			"the AdmissionReview's uid has %d bytes; send one of at most %d", len(req.UID), longestUID)
	}
	switch req.Operation {
	case admissionv1.Create, admissionv1.Update, admissionv1.Delete, admissionv1.Connect:
		return nil
	}
	return refuse(http.StatusBadRequest,
		"the AdmissionReview's operation is %q; it must be CREATE, UPDATE, DELETE or CONNECT", req.Operation)
}

// review is an AdmissionReview, parsed as far as is needed before any object is decoded.
type review struct {
	typeMeta metav1.TypeMeta
	// request holds the objects as text of the body: Object.Raw, OldObject.Raw and Options.Raw are parts of it, with a
	// capacity that makes an append copy. They are well-formed JSON, or nil for null and for a missing object.
	request admissionv1.AdmissionRequest
	// user is the text of request.UserInfo. parseUser parses it, because only steps need the user.
	user []byte

	parser *reviewParser // holds the memory of this review; nil if the decoder made it
}

// parsers are reused for the requests that no step wants.
var parsers = sync.Pool{New: func() any { return new(reviewParser) }}

// recycle returns the memory to parsers. The review and the request must not be used afterwards.
func (r *review) recycle() {
	if p := r.parser; p != nil {
		*p = reviewParser{}
		parsers.Put(p)
	}
}

// parseUser parses the user, which steps need but the matching of requests does not. Call it before the body is
// released.
func (r *review) parseUser() {
	if r.user != nil {
		p := &reviewParser{Reader: jsontext.Reader{Text: r.user}}
		p.userInfo(&r.request.UserInfo)
		r.user = nil
	}
}

// parseReview parses the body to the same values and the same refusals as decodeReview. In addition, it refuses a body
// that exceeds maxBeside. It reads the text once and copies no object. Duplicate members and unusual values are
// left to decodeReview.
func parseReview(body []byte) (*review, error) {
	if rev := scanReview(body); rev != nil {
		return rev, nil
	}
	if n := besideObjects(body); n > maxBeside {
		return nil, refuse(http.StatusRequestEntityTooLarge,
			"the AdmissionReview has %d bytes outside its objects; send at most %d", n, maxBeside)
	}
	return decodeReview(body)
}

// scanReview parses the body in place. It returns nil if the body must be refused or is left to the decoder.
func scanReview(body []byte) *review {
	p := parsers.Get().(*reviewParser)
	p.Text, p.result.parser = body, p
	p.review()
	if p.Peek(); p.At != len(body) || p.beside > maxBeside || checkReview(p.result.typeMeta, &p.result.request, true) != nil {
		return nil
	}
	return &p.result
}

// maxBeside bounds the bytes of a review beside its objects. Most of these are the groups and extras of a user, which
// take many times as much memory when they are decoded.
const maxBeside = 256 << 10

// besideObjects returns the number of bytes beside the objects.
func besideObjects(body []byte) (n int) {
	c, objects := jsontext.Reader{Text: body}, 0
	for more := c.Enter('{'); more; more = c.More('{') {
		if string(c.Name()) != "request" || c.Peek() != '{' {
			n += len(c.Value())
			continue
		}
		for more := c.Enter('{'); more; more = c.More('{') {
			switch string(c.Name()) {
			case "object", "oldObject", "options":
				objects += len(c.Value())
			default:
				n += len(c.Value())
			}
		}
	}
	switch {
	case !c.Failed():
		return n
	case json.Valid(body):
		return len(body) - objects
	}
	return 0 // the decoder returns the error
}

// reviewParser reads one AdmissionReview. It also holds the values that the request points to. A review is thus
// one piece of memory, except its lists and the text of its strings.
type reviewParser struct {
	jsontext.Reader
	result          review
	words           strings.Builder // the text of the review's strings, one after the other
	checking        bool            // strings and lists are read but not kept
	beside          int             // bytes of the review's strings
	requestKind     metav1.GroupVersionKind
	requestResource metav1.GroupVersionResource
	dryRun          bool
}

// members is the set of members of an object that have been seen. The decoder has rules of its own for duplicate
// members.
type members uint32

// once records a member by its number, and gives up on a duplicate.
func (p *reviewParser) once(seen *members, member int) {
	if *seen&(1<<member) != 0 {
		p.Fail()
	}
	*seen |= 1 << member
}

func (p *reviewParser) review() {
	var seen members
	if p.Peek() != '{' {
		p.Fail()
	}
	for more := p.Enter('{'); more; more = p.More('{') {
		switch string(p.Name()) {
		case "apiVersion":
			p.word(&seen, 0, &p.result.typeMeta.APIVersion)
		case "kind":
			p.word(&seen, 1, &p.result.typeMeta.Kind)
		case "request":
			p.once(&seen, 2)
			p.request(&p.result.request)
		default:
			p.Value()
		}
	}
}

func (p *reviewParser) request(req *admissionv1.AdmissionRequest) {
	var seen members
	for more := p.Enter('{'); more; more = p.More('{') {
		switch string(p.Name()) {
		case "uid":
			p.word(&seen, 0, (*string)(&req.UID))
		case "kind":
			p.once(&seen, 1)
			p.groupVersion("kind", &req.Kind.Group, &req.Kind.Version, &req.Kind.Kind)
		case "resource":
			p.once(&seen, 2)
			p.groupVersion("resource", &req.Resource.Group, &req.Resource.Version, &req.Resource.Resource)
		case "subResource":
			p.word(&seen, 3, &req.SubResource)
		case "requestKind":
			p.once(&seen, 4)
			if !p.Null() {
				req.RequestKind = &p.requestKind
				p.groupVersion("kind", &p.requestKind.Group, &p.requestKind.Version, &p.requestKind.Kind)
			}
		case "requestResource":
			p.once(&seen, 5)
			if !p.Null() {
				req.RequestResource = &p.requestResource
				p.groupVersion("resource", &p.requestResource.Group, &p.requestResource.Version, &p.requestResource.Resource)
			}
		case "requestSubResource":
			p.word(&seen, 6, &req.RequestSubResource)
		case "name":
			p.word(&seen, 7, &req.Name)
		case "namespace":
			p.word(&seen, 8, &req.Namespace)
		case "operation":
			p.word(&seen, 9, (*string)(&req.Operation))
		case "userInfo":
			p.once(&seen, 10)
			p.Peek()
			start := p.At
			p.checking = true
			p.userInfo(&req.UserInfo)
			p.checking = false
			if !p.Failed() {
				p.result.user = p.Text[start:p.At]
				p.beside += len(p.result.user) // long lists of empty strings count, too
			}
		case "object":
			p.raw(&seen, 11, &req.Object.Raw)
		case "oldObject":
			p.raw(&seen, 12, &req.OldObject.Raw)
		case "options":
			p.raw(&seen, 13, &req.Options.Raw)
		case "dryRun":
			p.once(&seen, 14)
			if !p.Null() {
				p.dryRun = p.boolean()
				req.DryRun = &p.dryRun
			}
		default:
			p.Value()
		}
	}
}

// groupVersion reads a GroupVersionKind or a GroupVersionResource. third is the name of the last member.
func (p *reviewParser) groupVersion(third string, group, version, last *string) {
	var seen members
	for more := p.Enter('{'); more; more = p.More('{') {
		switch name := p.Name(); string(name) {
		case "group":
			p.word(&seen, 0, group)
		case "version":
			p.word(&seen, 1, version)
		case third:
			p.word(&seen, 2, last)
		default:
			p.Value()
		}
	}
}

func (p *reviewParser) userInfo(user *authenticationv1.UserInfo) {
	var seen members
	for more := p.Enter('{'); more; more = p.More('{') {
		switch string(p.Name()) {
		case "username":
			p.word(&seen, 0, &user.Username)
		case "uid":
			p.word(&seen, 1, &user.UID)
		case "groups":
			p.once(&seen, 2)
			user.Groups = p.list()
		case "extra":
			p.once(&seen, 3)
			user.Extra = p.extra()
		default:
			p.Value()
		}
	}
}

func (p *reviewParser) extra() map[string]authenticationv1.ExtraValue {
	if p.Null() {
		return nil
	}
	if p.checking {
		p.checkExtra()
		return nil
	}
	all := map[string]authenticationv1.ExtraValue{}
	for more := p.Enter('{'); more; more = p.More('{') {
		name := p.keep(p.Name())
		if _, twice := all[name]; twice {
			p.Fail()
		}
		all[name] = p.list()
	}
	return all
}

// checkExtra checks the text that extra reads. If there are more members than most requests have, the search for
// duplicates is left to the decoder.
func (p *reviewParser) checkExtra() {
	var space [8][]byte
	names := space[:0]
	for more := p.Enter('{'); more; more = p.More('{') {
		name := p.Name()
		if len(names) == len(space) || slices.ContainsFunc(names, func(n []byte) bool { return bytes.Equal(n, name) }) {
			p.Fail()
			return
		}
		names = append(names, name)
		p.list()
	}
}

func (p *reviewParser) list() []string {
	if p.Null() {
		return nil
	}
	var items []string
	if !p.checking {
		items = make([]string, 0, 4)
	}
	for more := p.Enter('['); more; more = p.More('[') {
		if word := p.text(); !p.checking {
			items = append(items, word)
		}
	}
	return items
}

// raw reads the text of a RawExtension, a member that occurs once. null leaves it nil.
func (p *reviewParser) raw(seen *members, member int, into *[]byte) {
	if p.once(seen, member); !p.Null() {
		*into = p.Value()
	}
}

func (p *reviewParser) boolean() bool {
	word := string(p.Value())
	if word != "true" && word != "false" {
		p.Fail()
	}
	return word == "true"
}

// word reads a string, a member that occurs once.
func (p *reviewParser) word(seen *members, member int, into *string) {
	p.once(seen, member)
	*into = p.text()
}

// text reads a string. null counts as empty.
func (p *reviewParser) text() string {
	start := p.At
	word := p.String()
	if p.beside += p.At - start; p.checking || p.beside > maxBeside {
		return ""
	}
	return p.keep(word)
}

// keep returns a string with the contents of text, which belongs to the body.
func (p *reviewParser) keep(text []byte) string {
	if p.words.Cap() == 0 {
		p.words.Grow(256)
	}
	start := p.words.Len()
	p.words.Write(text)
	return p.words.String()[start:]
}
