// Package record keeps the AdmissionReviews that a running Manager answers in files, so that what happened in
// production can be played again at a desk.
//
// A Recorder stands in front of the handler (Wrap), copies what goes in and what comes out, and hands both to one
// goroutine, which redacts and writes them. Nothing of it can harm a call: there is a bound on what waits, what finds
// no room is left out and counted, and the disk holds so many files of so many bytes, of which the oldest go first. A
// folder belongs to one Recorder at a time. Close waits for the calls that have begun, which may be the ones that one
// wants: those that hang.
//
// # The file
//
// There is one file for each call: an AdmissionReview, in the version in which it came, that holds request and
// response and, as its last member, "eirinix" with what a review has no place for:
//
//	{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
//	 "request": {...}, "response": {...},
//	 "eirinix": {"path": "/mutate/sidecar", "received": "2026-11-21T14:45:22.000123456Z", "took": "1.2ms",
//	             "status": 200, "redacted": ["request.object.data"]}}
//
// The text of the request is that which arrived, byte for byte, but for what is redacted. A call that was answered
// with an HTTP error has no response but "error", the text of the answer. Read reads such files, and reviews that
// other tools have kept.
//
// # What is taken out
//
// Of every Secret (see the rules in secrets.go, which err on the side of caution) the values of data and stringData are
// replaced by Placeholder; their keys stay. The tokens of TokenReviews and TokenRequests are replaced too, and credentials,
// known by their names, in the extra of a user: of request.userInfo, of TokenReviews, SelfSubjectReviews, SubjectAccessReviews,
// LocalSubjectAccessReviews and CertificateSigningRequests. Patches that write there are redacted alike.
//
// Two kinds of annotations are removed, from all objects of a call (see copies.go). One whose text is JSON that holds a
// Secret or a token goes whatever its name, also in base64 or packed with gzip. Those in which tools keep a copy of a whole
// object, such as kubectl.kubernetes.io/last-applied-configuration, go when the call holds a Secret or a token, at
// whatever depth, and when the copy does.
//
// A value that was taken out of a call is taken out of its other strings as well (see values.go): of the request, the
// patch, warnings, messages, audit annotations and errors. It is found as it is and without the space around it, escaped as in
// JSON and in URLs, in hexadecimal, as a list of bytes, and in base64, also with other things before and behind it, and twice
// over; the placeholder is spelt likewise, but for escapes. In the request these strings stay: the names of members, but for
// labels, annotations and managed fields; the name, namespace, uid, kind and version of objects, and their times; and the
// resource and the operation of the request.
//
// As placeholders are the same everywhere, a patch applies to the recorded object as it did to the real one, and a step that
// only passes a value on does so when it is played again; unless a value is also the name of a member, or several keys
// became one.
//
// Options.Redact takes out other things that a program knows to be secret.
//
// What remains, and must be known: the names and sizes of things; the keys of Secrets; a Secret as text in another place than
// an annotation, or in YAML, in a call that holds it nowhere else; values that stand where none belong in such a call (an
// environment variable, a ConfigMap, a label); values of fewer than seven bytes; and things that a program makes of a value:
// parts of it, one line of several, a hash, other encodings.
//
// What cannot be redacted for sure is not written.
//
// # The folder
//
// New makes a folder with mode 0700, and files have mode 0600. It warns in the log of a folder that group or others may write
// to, in which they could replace recordings; not of one with the sticky bit, such as /tmp, in which they can only be in
// the way. It refuses one whose lock is a symbolic link.
package record
