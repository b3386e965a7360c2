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
// replaced by Placeholder; their keys stay. The tokens of TokenReviews and TokenRequests and what looks like a credential
// in userInfo.extra are replaced too. The same goes for what a patch writes to a Secret. Where a request holds a Secret,
// at whatever depth, the annotations in which tools keep a copy of a whole object, such as
// kubectl.kubernetes.io/last-applied-configuration, are removed from all that it holds; elsewhere they stay, unless the
// copy itself holds a Secret (see copies.go).
//
// What was taken out of a call is taken out of its patch, warnings, messages, audit annotations and errors as well, if it
// is repeated there (see values.go). Options.Redact takes out what else a program knows to be secret.
//
// What remains, and must be known: the names and sizes of things, the keys of Secrets, values that somebody put into an
// object where none belong (an environment variable, a ConfigMap, a label), and what the program makes of a Secret's
// values in its own words: parts of them, or fewer than seven bytes.
//
// What cannot be redacted for sure is not written.
package record
