package slogcore_test

// This file specifies what a handler of log/slog gets of a zap logger.

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.uber.org/zap"

	"code.cloudfoundry.org/eirinix/internal/slogcore"
)

func TestSlogcore(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "internal/slogcore")
}

var _ = Describe("A zap logger that writes to a handler of log/slog", func() {
	var lines bytes.Buffer
	logger := func(level slog.Level) *zap.Logger {
		lines.Reset()
		return zap.New(slogcore.New(slog.NewJSONHandler(&lines, &slog.HandlerOptions{Level: level, AddSource: true})), zap.AddCaller())
	}
	read := func() (all []map[string]any) {
		GinkgoHelper()
		for line := range strings.Lines(lines.String()) {
			var m map[string]any
			Expect(json.Unmarshal([]byte(line), &m)).To(Succeed())
			all = append(all, m)
		}
		return all
	}

	It("keeps levels, names, fields and the caller", func() {
		log := logger(slog.LevelDebug).Named("eirinix").With(zap.String("a", "b"), zap.Namespace("in"), zap.Int("n", 1))
		log.Debug("one", zap.Error(errors.New("oops")))
		log.Info("two", zap.Strings("s", []string{"x"}), zap.Namespace("deep"), zap.Bool("t", true))
		log.Warn("three")
		log.Error("four")
		Expect(read()).To(HaveExactElements(
			And(HaveKeyWithValue("level", slog.Level(-1).String()), HaveKeyWithValue("msg", "one"), HaveKeyWithValue("a", "b"),
				HaveKeyWithValue("in", And(HaveKeyWithValue("n", 1.0), HaveKeyWithValue("error", "oops"), HaveKeyWithValue("logger", "eirinix"))),
				HaveKeyWithValue("source", HaveKeyWithValue("file", HaveSuffix("slogcore_test.go")))),
			And(HaveKeyWithValue("level", "INFO"), HaveKeyWithValue("in", And(HaveKeyWithValue("s", []any{"x"}), HaveKeyWithValue("deep", map[string]any{"t": true})))),
			HaveKeyWithValue("level", "WARN"),
			HaveKeyWithValue("level", "ERROR"),
		))
	})

	It("hands an error on as it is", func() {
		var handed any
		record := func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == "error" {
				handed = a.Value.Any()
			}
			return a
		}
		oops := errors.New("oops")
		zap.New(slogcore.New(slog.NewJSONHandler(&lines, &slog.HandlerOptions{ReplaceAttr: record}))).Info("one", zap.Error(oops))
		Expect(handed).To(BeIdenticalTo(oops))
	})

	It("writes what the handler takes", func() {
		log := logger(slog.LevelWarn)
		log.Debug("no")
		log.Info("no")
		log.Warn("yes")
		Expect(log.Core().Enabled(zap.InfoLevel)).To(BeFalse())
		Expect(read()).To(HaveExactElements(HaveKeyWithValue("msg", "yes")))
		Expect(log.Sync()).To(Succeed())
	})

	It("adds a stack", func() {
		logger(slog.LevelDebug).WithOptions(zap.AddStacktrace(zap.ErrorLevel)).Error("oops")
		Expect(read()).To(HaveExactElements(HaveKeyWithValue("stacktrace", ContainSubstring("slogcore_test"))))
	})
})
