// Package diagnose finds out why something in the path between the API server and the webhook does not work, and
// says it in sentences that name the object and the remedy.
//
// Check is the pre-flight: it asks the API server which rights are missing, and Manifest prints them as RBAC objects
// that can be applied as they are. Run is the diagnosis: it lets the API server call the webhook for an object that
// is made for the purpose (see Canary), and looks at everything that the call passes. Watch is the diagnosis of a
// program that has just started: it looks again until all is well, and logs. None of them writes anything. They need no
// right: each names those that it lacked.
package diagnose
