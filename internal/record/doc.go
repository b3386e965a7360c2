// Package record writes the AdmissionReviews that a running Manager answers to files, so that events in production
// can be replayed at a desk.
//
// A Recorder wraps the handler (Wrap), copies requests and responses, and passes both to one goroutine, which redacts
// and writes them. The recording cannot harm a call. The queue is bounded, and calls that find no room are dropped and
// counted. The folder holds a bounded number of files and bytes, and the oldest files are removed first. A folder
// belongs to one Recorder at a time. Close waits for the calls in flight, because calls that hang can be interesting.
//
// # The file
//
// Each call has one file. It holds an AdmissionReview, in the version that the API server sent. Its member "eirinix"
// holds the Circumstances. The request has the same JSON value as the one that arrived, except for redacted
// values: numbers keep their text, but space, order and escapes do not stay, and of a member that occurs twice the last
// one counts. Members of the review beside the request are dropped. A call that was answered with an HTTP error has no
// response but "error", the text of the answer. Read reads such files, and reviews from other tools.
//
// The objects that steps have read with Call.Reader stand in "eirinix", too, by their declaration. They are collected
// as references to immutable memory. A call that reads too many is recorded without them, and says so.
//
// # Redaction
//
// Objects that were read are redacted as those of the request are.
//
// Of Secrets, TokenReviews and TokenRequests, at any depth, only the members in redact.go stay. In all others, strings
// and numbers are replaced by placeholders, and the shape stays. Credentials in the extra of users are known by name.
// If a call holds such an object, also as JSON in an annotation, all annotations are removed that could hold another
// one: long ones, those with several lines, JSON and gzip, also in base64.
//
// A value that was removed from a call is replaced in the other strings of the call, too. It is found as it is, without
// the space around it, escaped as in JSON and in URLs, in base64 (also with other text, and twice), in hexadecimal and
// as a list of bytes. The names of members stay, except in labels, annotations and managed fields. So do names, uids,
// kinds, versions and times of objects, and the resource and the operation of the request.
//
// If anything was redacted, a new patch is made between the redacted objects. So it applies to the recorded object as
// the real one did, and a replay compares equal. A call that cannot be redacted for sure, for example because its patch
// does not apply, is not written. The following data remain in recordings:
//
//   - the names and sizes of things, and the keys of Secrets
//   - a Secret as text outside of annotations, in YAML or compressed, in a call that holds it nowhere else
//   - secret values in other kinds (an environment variable, a ConfigMap), in a call that holds them nowhere else
//   - values of fewer than seven bytes, and parts of values, also where two values overlap
//   - parts of a Secret that Read.Transform has moved into its metadata
//   - values as the names of members, and in other encodings, such as a hash
package record
