// Package admit turns an AdmissionReview on the wire into a call of an extension and back.
//
// It exists because failurePolicy only means what it says when the answer is right: a denial is HTTP 200
// with allowed false, while everything that went wrong (an error, a panic, a missed deadline, a patch that
// does not apply) is an HTTP error. controller-runtime's own handler answers 200 always, and the API server
// then takes failures for denials, even under Ignore.
//
// What arrives is hostile: anyone who reaches the port can call. A request is read within a bound and
// understood in full before any extension sees it.
package admit
