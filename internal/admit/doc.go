// Package admit turns an AdmissionReview on the wire into a call of an extension and back.
//
// failurePolicy works only if denials and failures are answered differently. A denial is HTTP 200 with allowed false. A
// failure (an error, a panic, a missed deadline, a patch that does not apply) is an HTTP error. controller-runtime's
// own handler always answers 200, and the API server then treats failures as denials, even under Ignore.
//
// Any client that reaches the port can send a request, so requests are treated as hostile. A request is read within a
// bound, and it is parsed in full before any extension sees it.
package admit
