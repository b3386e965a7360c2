// Package settled finds the requests about an object that no step needs to see, because they change nothing that a step
// could judge: what is dying can go, and what is written again as it is can be stored anew. Is decides in this process, and
// Condition lets the API server decide about dying objects. Both rather call than not, but CEL takes numbers that are one
// float64 for equal, and in built-in kinds quantities that are one amount.
//
// The API server does not decide about updates that change nothing. It would compare all members of each update, which costs
// more than a tenth of a call (11 to 29 % on Kubernetes 1.37, for objects of 4 and 22 KB).
package settled

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"

	"code.cloudfoundry.org/eirinix/internal/jsontext"
)

// others are the members of a dying object that change while it dies, and housekeeping those of its metadata. Only a
// deletion changes the last two.
var (
	others       = []string{"metadata", "status"}
	housekeeping = []string{
		"finalizers", "ownerReferences", "managedFields", "resourceVersion", "generation", "deletionTimestamp", "deletionGracePeriodSeconds",
	}
)

// Condition is a matchCondition that is false for the DELETE of an object that is dying already, and for an UPDATE of it
// that changes only its status and housekeeping. For an object with very many members it is true: the more members, the
// more it costs, and an API server that exceeds its budget for CEL refuses the request. So it takes at most 0.3 of the budget
// of 1,000,000, for an object of 3 MB, which is the longest request.
var Condition = strings.NewReplacer("OTHERS", inCEL(others), "HOUSEKEEPING", inCEL(housekeeping)).Replace(strings.Join([]string{
	"request.operation in ['CREATE', 'CONNECT']",
	"has(request.subResource) && request.subResource != ''",
	"oldObject == null", "!has(oldObject.metadata)", "!has(oldObject.metadata.deletionTimestamp) || oldObject.metadata.deletionTimestamp == null",
	"request.operation == 'UPDATE' && (size(oldObject) > 64 || size(object) > 64" +
		" || !oldObject.all(k, k in OTHERS || k in object && object[k] == oldObject[k]) || !object.all(k, k in OTHERS || k in oldObject)" +
		" || !oldObject.metadata.all(k, k in HOUSEKEEPING || k in object.metadata && object.metadata[k] == oldObject.metadata[k])" +
		" || !object.metadata.all(k, k in HOUSEKEEPING || k in oldObject.metadata))",
}, " || "))

func inCEL(names []string) string { return "['" + strings.Join(names, "', '") + "']" }

// Is reports whether a request is one that Condition leaves out, or an UPDATE that changes only managedFields and
// resourceVersion. What differs in its text counts as changed, and so does everything in a subresource.
func Is(req *admissionv1.AdmissionRequest) bool {
	was, is := req.OldObject.Raw, req.Object.Raw
	if req.SubResource != "" || req.Operation != admissionv1.Update && req.Operation != admissionv1.Delete {
		return false
	}
	// The old metadata is read once. Most updates differ behind it, which a comparison of texts finds.
	c, dying := jsontext.Reader{Text: was}, false // kept by finalizers or a grace period
	if !c.Member("metadata") {
		return false
	}
	from := c.At
	for more := c.Enter('{'); more; more = c.More('{') {
		if name, value := string(c.Name()), c.Value(); name == "deletionTimestamp" {
			dying = string(value) != "null"
		}
	}
	switch {
	case c.Failed():
		return false
	case dying:
		return req.Operation == admissionv1.Delete || SameMembers(was, is, others...) &&
			SameMembers(was[from:c.At], Member(is, "metadata"), housekeeping...)
	case req.Operation == admissionv1.Delete || !bytes.HasPrefix(is, was[:from]) || !bytes.HasSuffix(is, was[c.At:]):
		return false
	}
	now := jsontext.Reader{Text: is, At: from}
	metadata := now.Value()
	return !now.Failed() && len(is)-now.At == len(was)-c.At && SameMembers(was[from:c.At], metadata, "managedFields", "resourceVersion")
}

// Member returns the text of an object's member, or nil.
func Member(raw []byte, name string) []byte {
	c := jsontext.Reader{Text: raw}
	if !c.Member(name) {
		return nil
	}
	return c.Value()
}

// SameMembers reports whether two objects have the same members but for these, in the same order and the same text.
func SameMembers(a, b []byte, but ...string) bool {
	textA, okA := membersBut(a, but)
	textB, okB := membersBut(b, but)
	return okA && okB && bytes.Equal(textA, textB)
}

// membersBut returns an object's text without some members, in a form to compare. It returns false if it is no object.
func membersBut(raw []byte, without []string) (text []byte, ok bool) {
	c := jsontext.Reader{Text: raw}
	if c.Peek() != '{' {
		return nil, false
	}
	for more := c.Enter('{'); more; more = c.More('{') {
		name := string(c.Name())
		if value := c.Value(); !slices.Contains(without, name) {
			text = append(strconv.AppendQuote(text, name), value...)
		}
	}
	return text, !c.Failed()
}
