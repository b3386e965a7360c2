// Package diagnose finds the reason why a part of the path between the API server and the webhook does not work. Each
// finding names the object and the remedy.
//
// Check is the pre-flight: it asks the API server which rights are missing, and Manifest prints them as RBAC objects
// that can be applied unchanged. Run is the diagnosis: it makes the API server call the webhook for a test object (see
// Canary), and checks everything that the call passes. Watch is the diagnosis of a program that has just started: it
// repeats until all is well, and logs. None of them writes anything. They need no right: each names the rights that it
// lacked.
package diagnose
