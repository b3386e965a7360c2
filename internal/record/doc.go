// Package record writes the AdmissionReviews that a running Manager answers to files, so that events in production
// can be replayed at a desk.
//
// A Recorder wraps the handler (Wrap), copies requests and responses, and passes both to one goroutine, which redacts
// and writes them. The recording cannot harm a call. The queue is bounded, and calls that find no room are left out
// and counted. The folder holds a bounded number of files and bytes, and the oldest files are removed first. A folder
// belongs to one Recorder at a time. Close waits for the calls in flight, because calls that hang can be the
// interesting ones.
//
// # The file
//
// Each call has one file. It holds an AdmissionReview, in the version that the API server sent, with request and
// response. Its last member, "eirinix", holds data for which a review has no field:
//
//	{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
//	 "request": {...}, "response": {...},
//	 "eirinix": {"path": "/mutate/sidecar", "received": "2026-11-21T14:45:22.000123456Z", "took": "1.2ms",
//	             "status": 200, "redacted": ["request.object.data"]}}
//
// The text of the request is the one that arrived, byte for byte, except for redacted values. A call that was
// answered with an HTTP error has no response but "error", which holds the text of the answer. Read reads such files,
// and reviews from other tools.
//
// # Redaction
//
// In every Secret, the values of data and stringData are replaced by Placeholder, and their keys stay. The rules in
// secrets.go err on the side of caution. The tokens of TokenReviews and TokenRequests are replaced, too. So are
// credentials in the extra of a user, which are known by their names. That applies to request.userInfo, TokenReviews,
// SelfSubjectReviews, SubjectAccessReviews, LocalSubjectAccessReviews and CertificateSigningRequests. Patches that
// write to these places are redacted alike.
//
// Two kinds of annotations are removed from all objects of a call (see copies.go). The first kind has a text that is
// JSON and holds a Secret or a token, also in base64 or compressed with gzip. Such an annotation is removed whatever
// its name. The second kind holds a copy of a whole object that a tool keeps, such as
// kubectl.kubernetes.io/last-applied-configuration. It is removed if the call holds a Secret or a token, at any
// depth, or if the copy does.
//
// A value that was removed from a call is removed from the other strings of the call as well (see values.go): those of
// the request, the patch, warnings, messages, audit annotations and errors. The value is found in these forms:
//
//   - as it is, and without the space around it
//   - escaped as in JSON and in URLs
//   - in hexadecimal
//   - as a list of bytes
//   - in base64, also with other text before and behind it, and in base64 twice
//
// The placeholder is written in the same form, but without escapes. In the request these strings stay: the names of
// members, except in labels, annotations and managed fields; the name, namespace, uid, kind and version of objects, and
// their times; and the resource and the operation of the request.
//
// Placeholders are the same everywhere. So a patch applies to the recorded object as it did to the real one. A step
// that only passes a value on does so in a replay, too. Exceptions are a value that is also the name of a member, and
// several keys that became one.
//
// Options.Redact removes other data that a program knows to be secret.
//
// The following data remain in recordings, and operators must know about them:
//
//   - the names and sizes of things, and the keys of Secrets
//   - a Secret as text outside of annotations, or in YAML, in a call that holds it nowhere else
//   - secret values in places where they do not belong (an environment variable, a ConfigMap, a label), in a call that
//     holds them nowhere else
//   - values of fewer than seven bytes
//   - data that a program derives from a value: parts of it, one line of several, a hash, other encodings
//
// A call that cannot be redacted for sure is not written.
//
// # The folder
//
// New creates a folder with mode 0700, and files have mode 0600. It logs a warning about a folder that group or
// others may write to, because they could replace recordings. A folder with the sticky bit, such as /tmp, causes no
// warning, because other users can only add files there. New refuses a folder whose lock is a symbolic link.
package record
