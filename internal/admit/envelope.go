package admit

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// envelope is an AdmissionReview understood as far as is needed before any object is decoded.
type envelope struct {
	typeMeta metav1.TypeMeta
	// request holds the objects as they stand in the body: Object.Raw, OldObject.Raw and Options.Raw are parts
	// of it, cut so that an append copies. They are well-formed JSON, or nil for null and for none.
	request admissionv1.AdmissionRequest
	// user is the text of request.UserInfo, which complete reads: who asks matters to steps alone.
	user []byte

	parser *envelopeParser // whose memory this is; nil when the decoder made it
}

// parsers are for the requests that nobody wants.
var parsers = sync.Pool{New: func() any { return new(envelopeParser) }}

// recycle gives the memory back. Nobody may know the envelope or the request any more.
func (e *envelope) recycle() {
	if p := e.parser; p != nil {
		*p = envelopeParser{}
		parsers.Put(p)
	}
}

// complete fills in what steps want to know beside what says whether they do. Call it while the body is there.
func (e *envelope) complete() {
	if e.user != nil {
		p := &envelopeParser{cursor: cursor{text: e.user}}
		p.userInfo(&e.request.UserInfo)
		e.user = nil
	}
}

// parseEnvelope understands the body as parseReview does: the same values and the same refusals. It goes over
// the text once and copies no object; what it does not take for plain, it leaves to parseReview.
func parseEnvelope(body []byte) (*envelope, error) {
	if env := cutEnvelope(body); env != nil {
		return env, nil
	}
	if n := besideObjects(body); n > mostBeside {
		return nil, refuse(http.StatusRequestEntityTooLarge, "the AdmissionReview has %d bytes beside its objects; send at most %d", n, mostBeside)
	}
	rev, err := parseReview(body)
	if err != nil {
		return nil, err
	}
	return &envelope{typeMeta: rev.TypeMeta, request: rev.Request.AdmissionRequest}, nil
}

// cutEnvelope returns nil for what must be refused and for what it leaves to the decoder.
func cutEnvelope(body []byte) *envelope {
	p := parsers.Get().(*envelopeParser)
	p.text, p.env.parser = body, p
	p.review()
	if p.peek(); p.odd || p.at != len(body) {
		return nil
	}
	req := &p.env.request
	switch {
	case p.env.typeMeta.Kind != reviewKind,
		p.env.typeMeta.APIVersion != reviewGroup+"/v1" && p.env.typeMeta.APIVersion != reviewGroup+"/v1beta1",
		req.UID == "", len(req.UID) > longestUID, p.beside > mostBeside:
		return nil
	}
	switch req.Operation {
	case admissionv1.Create, admissionv1.Update, admissionv1.Delete, admissionv1.Connect:
		return &p.env
	}
	return nil
}

// mostBeside bounds what a review holds beside its objects: the groups and extras of a user above all, which take many
// times as much memory when they are decoded.
const mostBeside = 256 << 10

// besideObjects is how much that is.
func besideObjects(body []byte) (n int) {
	c, objects := &cursor{text: body}, 0
	for more := c.enter('{'); more; more = c.more('{') {
		if string(c.name()) != "request" || c.peek() != '{' {
			n += len(c.value())
			continue
		}
		for more := c.enter('{'); more; more = c.more('{') {
			switch string(c.name()) {
			case "object", "oldObject", "options":
				objects += len(c.value())
			default:
				n += len(c.value())
			}
		}
	}
	switch {
	case !c.odd:
		return n
	case json.Valid(body):
		return len(body) - objects
	}
	return 0 // the decoder says what is wrong
}

// envelopeParser reads one AdmissionReview. What the request points to stands in it as well, so that all of an
// envelope but its lists is one piece of memory.
type envelopeParser struct {
	cursor
	env             envelope
	words           strings.Builder // the text of the envelope's strings, one after the other
	checking        bool            // strings and lists are read, and not kept
	beside          int             // bytes of the envelope's strings
	requestKind     metav1.GroupVersionKind
	requestResource metav1.GroupVersionResource
	dryRun          bool
}

// members is which members of an object have been seen; the decoder's rules for a second one are its own.
type members uint32

// once notes a member, by its number.
func (p *envelopeParser) once(seen *members, member int) {
	if *seen&(1<<member) != 0 {
		p.giveUp()
	}
	*seen |= 1 << member
}

func (p *envelopeParser) review() {
	var seen members
	if p.peek() != '{' {
		p.giveUp()
	}
	for more := p.enter('{'); more; more = p.more('{') {
		switch string(p.name()) {
		case "apiVersion":
			p.once(&seen, 0)
			p.env.typeMeta.APIVersion = p.word()
		case "kind":
			p.once(&seen, 1)
			p.env.typeMeta.Kind = p.word()
		case "request":
			p.once(&seen, 2)
			p.request(&p.env.request)
		default:
			p.value()
		}
	}
}

func (p *envelopeParser) request(req *admissionv1.AdmissionRequest) {
	var seen members
	for more := p.enter('{'); more; more = p.more('{') {
		switch string(p.name()) {
		case "uid":
			p.once(&seen, 0)
			req.UID = types.UID(p.word())
		case "kind":
			p.once(&seen, 1)
			p.groupVersion("kind", &req.Kind.Group, &req.Kind.Version, &req.Kind.Kind)
		case "resource":
			p.once(&seen, 2)
			p.groupVersion("resource", &req.Resource.Group, &req.Resource.Version, &req.Resource.Resource)
		case "subResource":
			p.once(&seen, 3)
			req.SubResource = p.word()
		case "requestKind":
			p.once(&seen, 4)
			if !p.null() {
				req.RequestKind = &p.requestKind
				p.groupVersion("kind", &p.requestKind.Group, &p.requestKind.Version, &p.requestKind.Kind)
			}
		case "requestResource":
			p.once(&seen, 5)
			if !p.null() {
				req.RequestResource = &p.requestResource
				p.groupVersion("resource", &p.requestResource.Group, &p.requestResource.Version, &p.requestResource.Resource)
			}
		case "requestSubResource":
			p.once(&seen, 6)
			req.RequestSubResource = p.word()
		case "name":
			p.once(&seen, 7)
			req.Name = p.word()
		case "namespace":
			p.once(&seen, 8)
			req.Namespace = p.word()
		case "operation":
			p.once(&seen, 9)
			req.Operation = admissionv1.Operation(p.word())
		case "userInfo":
			p.once(&seen, 10)
			p.peek()
			start := p.at
			p.checking = true
			p.userInfo(&req.UserInfo)
			p.checking = false
			p.env.user = p.text[start:p.at]
			p.beside += len(p.env.user) // empty strings make lists long, too
		case "object":
			p.once(&seen, 11)
			req.Object.Raw = p.raw()
		case "oldObject":
			p.once(&seen, 12)
			req.OldObject.Raw = p.raw()
		case "options":
			p.once(&seen, 13)
			req.Options.Raw = p.raw()
		case "dryRun":
			p.once(&seen, 14)
			if !p.null() {
				p.dryRun = p.boolean()
				req.DryRun = &p.dryRun
			}
		default:
			p.value()
		}
	}
}

// groupVersion reads a GroupVersionKind or a GroupVersionResource; third is what the last is called.
func (p *envelopeParser) groupVersion(third string, group, version, last *string) {
	var seen members
	for more := p.enter('{'); more; more = p.more('{') {
		switch name := p.name(); string(name) {
		case "group":
			p.once(&seen, 0)
			*group = p.word()
		case "version":
			p.once(&seen, 1)
			*version = p.word()
		case third:
			p.once(&seen, 2)
			*last = p.word()
		default:
			p.value()
		}
	}
}

func (p *envelopeParser) userInfo(user *authenticationv1.UserInfo) {
	var seen members
	for more := p.enter('{'); more; more = p.more('{') {
		switch string(p.name()) {
		case "username":
			p.once(&seen, 0)
			user.Username = p.word()
		case "uid":
			p.once(&seen, 1)
			user.UID = p.word()
		case "groups":
			p.once(&seen, 2)
			user.Groups = p.list()
		case "extra":
			p.once(&seen, 3)
			user.Extra = p.extra()
		default:
			p.value()
		}
	}
}

func (p *envelopeParser) extra() map[string]authenticationv1.ExtraValue {
	if p.null() {
		return nil
	}
	if p.checking {
		p.checkExtra()
		return nil
	}
	all := map[string]authenticationv1.ExtraValue{}
	for more := p.enter('{'); more; more = p.more('{') {
		name := p.keep(p.name())
		if _, twice := all[name]; twice {
			p.giveUp()
		}
		all[name] = p.list()
	}
	return all
}

// checkExtra reads what extra reads. Of more members than most have, it leaves it to the decoder whether one comes
// twice.
func (p *envelopeParser) checkExtra() {
	var space [8][]byte
	names := space[:0]
	for more := p.enter('{'); more; more = p.more('{') {
		name := p.name()
		if len(names) == len(space) || slices.ContainsFunc(names, func(n []byte) bool { return bytes.Equal(n, name) }) {
			p.giveUp()
			return
		}
		names = append(names, name)
		p.list()
	}
}

func (p *envelopeParser) list() []string {
	if p.null() {
		return nil
	}
	var items []string
	if !p.checking {
		items = make([]string, 0, 4)
	}
	for more := p.enter('['); more; more = p.more('[') {
		if word := p.word(); !p.checking {
			items = append(items, word)
		}
	}
	return items
}

// raw reads a RawExtension, which null leaves as it was.
func (p *envelopeParser) raw() []byte {
	if p.null() {
		return nil
	}
	return p.value()
}

func (p *envelopeParser) boolean() bool {
	word := string(p.value())
	if word != "true" && word != "false" {
		p.giveUp()
	}
	return word == "true"
}

// word reads a string. null counts as empty.
func (p *envelopeParser) word() string {
	if p.null() {
		return ""
	}
	text := p.plain()
	if p.beside += len(text); p.checking || p.beside > mostBeside {
		return ""
	}
	return p.keep(text)
}

// keep makes a string of text that belongs to the body.
func (p *envelopeParser) keep(text []byte) string {
	switch string(text) { // what stands in most reviews needs no memory
	case "":
		return ""
	case "v1":
		return "v1"
	case "Pod":
		return "Pod"
	case "pods":
		return "pods"
	case string(admissionv1.Create):
		return string(admissionv1.Create)
	case string(admissionv1.Update):
		return string(admissionv1.Update)
	case reviewKind:
		return reviewKind
	case reviewGroup + "/v1":
		return reviewGroup + "/v1"
	}
	if p.words.Cap() == 0 {
		p.words.Grow(256)
	}
	start := p.words.Len()
	p.words.Write(text)
	return p.words.String()[start:]
}
