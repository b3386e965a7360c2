// Package chain runs the steps of a webhook entry on one request. It knows no HTTP: a server, an audit and a replay use it
// alike. New makes a Chain of a Config, Chain.Select returns the steps that want a request, and Runner.Run runs them within
// the deadline of a context. Shadows run after the answer, and a Player plays one step alone.
//
// failurePolicy works only if denials and failures are answered differently. An Outcome therefore holds a response, which
// can be a denial, or an error.
package chain
