package ca

// This file encodes Unicode labels for certificates, which carry ASCII names only. The algorithm and its
// parameters are those of RFC 3492, sections 5 and 6.

import (
	"fmt"
	"math"
	"strings"
)

const (
	punyBase        = 36
	punyTMin        = 1
	punyTMax        = 26
	punySkew        = 38
	punyDamp        = 700
	punyInitialBias = 72
	punyInitialN    = 128
)

// punycode encodes one label of valid UTF-8, without the prefix "xn--".
func punycode(label string) (string, error) {
	runes := []rune(label)
	if len(runes) > 63 { // the encoding is never shorter; and this keeps delta far from an overflow
		return "", fmt.Errorf("%w: a label has more than 63 characters", ErrInvalidHost)
	}
	var out strings.Builder
	for _, r := range runes {
		if r < punyInitialN {
			out.WriteRune(r)
		}
	}
	basic := out.Len()
	if basic > 0 {
		out.WriteByte('-')
	}
	n, delta, bias := rune(punyInitialN), 0, punyInitialBias
	for handled := basic; handled < len(runes); n++ {
		next := rune(math.MaxInt32)
		for _, r := range runes {
			if r >= n && r < next {
				next = r
			}
		}
		delta += int(next-n) * (handled + 1)
		n = next
		for _, r := range runes {
			if r < n {
				delta++
			}
			if r != n {
				continue
			}
			writeVariableLength(&out, delta, bias)
			bias = adapt(delta, handled+1, handled == basic)
			delta = 0
			handled++
		}
		delta++
	}
	return out.String(), nil
}

func writeVariableLength(out *strings.Builder, q, bias int) {
	for k := punyBase; ; k += punyBase {
		t := max(punyTMin, min(punyTMax, k-bias))
		if q < t {
			out.WriteByte(punyDigit(q))
			return
		}
		out.WriteByte(punyDigit(t + (q-t)%(punyBase-t)))
		q = (q - t) / (punyBase - t)
	}
}

func punyDigit(d int) byte {
	return "abcdefghijklmnopqrstuvwxyz0123456789"[d]
}

func adapt(delta, points int, first bool) int {
	if first {
		delta /= punyDamp
	} else {
		delta /= 2
	}
	delta += delta / points
	k := 0
	for delta > (punyBase-punyTMin)*punyTMax/2 {
		delta /= punyBase - punyTMin
		k += punyBase
	}
	return k + (punyBase-punyTMin+1)*delta/(delta+punySkew)
}
