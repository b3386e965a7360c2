package eirinix

import "time"

// Within returns a Read whose objects may be that old. A spec cannot wait as long as the shortest Read.MaxStale.
func Within(age time.Duration, r Read) Read {
	r.within = age
	return r
}

// InPod has the program run in a pod of that namespace until the spec ends.
var InPod = inPod
