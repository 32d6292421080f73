package gateway

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"assay/rules/internal/record"
	"assay/rules/internal/worker"
)

// metrics are drawn from the terminal records, so that they say the same. Those
// with names of OpenTelemetry's conventions for generative AI have its units and
// buckets; it has no name for queues and refusals.
// https://github.com/open-telemetry/semantic-conventions-genai
type metrics struct {
	handler http.Handler
	server  *Server

	requests  *prometheus.CounterVec
	tokens    *prometheus.CounterVec
	duration  *prometheus.HistogramVec
	first     *prometheus.HistogramVec
	perToken  *prometheus.HistogramVec
	queueWait *prometheus.HistogramVec

	lanes, waiting, connections, refused, unwritten *prometheus.Desc
}

var modelLabels = []string{"gen_ai_operation_name", "gen_ai_request_model"}

func newMetrics(s *Server) *metrics {
	registry := prometheus.NewRegistry()
	histogram := func(name, help string, labels []string, buckets ...float64) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
		registry.MustRegister(h)
		return h
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		registry.MustRegister(c)
		return c
	}
	m := &metrics{
		handler: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}),
		server:  s,

		requests: counter("assay_requests_total", "Requests that ended, each in one record.", "endpoint", "model", "outcome", "reason", "status"),
		tokens:   counter("assay_tokens_total", "Tokens of completed requests, as the engine counts them.", "model", "gen_ai_token_type"),
		duration: histogram("gen_ai_server_request_duration_seconds", "From arrival to the last write, of requests that reached an engine.",
			append(modelLabels, "error_type"), .01, .02, .04, .08, .16, .32, .64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92),
		first: histogram("gen_ai_server_time_to_first_token_seconds", "From arrival to the first write of a completed stream.",
			modelLabels, .001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10),
		perToken: histogram("gen_ai_server_time_per_output_token_seconds", "Mean time of an output token after the first, of completed streams, by the engine's clock.",
			modelLabels, .01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5),
		queueWait: histogram("assay_queue_wait_seconds", "Time that a request waited for a lane.",
			[]string{"model"}, .001, .01, .1, .5, 1, 2.5, 5, 10, 30, 60, 120),

		lanes:       prometheus.NewDesc("assay_lanes", "Lanes by state.", []string{"model", "state"}, nil),
		waiting:     prometheus.NewDesc("assay_queue_depth", "Requests that wait for a lane.", []string{"model"}, nil),
		connections: prometheus.NewDesc("assay_connections", "Open connections.", nil, nil),
		refused:     prometheus.NewDesc("assay_connections_refused_total", "Connections refused over the limit.", nil, nil),
		unwritten:   prometheus.NewDesc("assay_records_failing", "1 while records cannot be written.", nil, nil),
	}
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), m)
	return m
}

// Describe and Collect report what is true at the moment.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.lanes, m.waiting, m.connections, m.refused, m.unwritten} {
		ch <- d
	}
}

func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	for _, model := range m.server.models {
		states := map[worker.State]float64{}
		for _, lane := range model.pool.Lanes() {
			states[lane.State]++
		}
		for _, state := range worker.States {
			gauge(m.lanes, states[state], model.name(), string(state))
		}
		gauge(m.waiting, float64(model.pool.Waiting()), model.name())
	}
	gauge(m.connections, float64(m.server.connections.open.Load()))
	ch <- prometheus.MustNewConstMetric(m.refused, prometheus.CounterValue, float64(m.server.connections.refused.Load()))
	failing := 0.0
	if m.server.records.Failure() != nil {
		failing = 1
	}
	gauge(m.unwritten, failing)
}

// observe takes in a request that ended. model is the first name of the model, and
// empty if there is none of the name that was asked for.
func (m *metrics) observe(r *record.Record, model string) {
	m.requests.WithLabelValues(r.Endpoint, model, string(r.Outcome), string(r.Reason), strconv.Itoa(r.Status)).Inc()
	if r.WaitNS != nil {
		m.queueWait.WithLabelValues(model).Observe(inSeconds(*r.WaitNS))
	}
	if r.Lane == nil {
		return
	}
	operation := map[string]string{"chat": "chat", "completions": "text_completion"}[r.Endpoint]
	fault := string(r.Reason)
	if fault == "" && r.Outcome != record.Completed {
		fault = string(r.Outcome)
	}
	m.duration.WithLabelValues(operation, model, fault).Observe(inSeconds(r.TotalNS))
	task := r.Task
	if r.Outcome != record.Completed || task == nil {
		return
	}
	for kind, n := range map[string]*int64{"input": task.PromptTokens, "output": task.CompletionTokens} {
		if n != nil {
			m.tokens.WithLabelValues(model, kind).Add(float64(*n))
		}
	}
	if r.Stream && r.FirstWriteNS != nil {
		m.first.WithLabelValues(operation, model).Observe(inSeconds(*r.FirstWriteNS))
	}
	if task.FirstIncrementNS != nil && task.CompletionTokens != nil && *task.CompletionTokens > 1 {
		m.perToken.WithLabelValues(operation, model).Observe(inSeconds(task.WallNS-*task.FirstIncrementNS) / float64(*task.CompletionTokens-1))
	}
}

func inSeconds(ns int64) float64 { return time.Duration(ns).Seconds() }
