{{/* Plain JSON: Grafana's own placeholders have one brace, so nothing here is a Helm expression. */}}
{{- define "ferrite.dashboard" -}}
{
  "title": "Ferrite controllers",
  "uid": "ferrite-controllers",
  "tags": [
    "ferrite"
  ],
  "schemaVersion": 39,
  "refresh": "30s",
  "editable": true,
  "time": {
    "from": "now-6h",
    "to": "now"
  },
  "templating": {
    "list": [
      {
        "name": "datasource",
        "type": "datasource",
        "query": "prometheus",
        "label": "Data source"
      },
      {
        "name": "namespace",
        "type": "query",
        "label": "Namespace",
        "datasource": {
          "type": "prometheus",
          "uid": "${datasource}"
        },
        "query": "label_values(controller_runtime_reconcile_total, namespace)",
        "refresh": 2,
        "includeAll": true,
        "multi": true,
        "current": {
          "text": "All",
          "value": "$__all"
        }
      },
      {
        "name": "controller",
        "type": "query",
        "label": "Controller",
        "datasource": {
          "type": "prometheus",
          "uid": "${datasource}"
        },
        "query": "label_values(controller_runtime_reconcile_total{namespace=~\"$namespace\"}, controller)",
        "refresh": 2,
        "includeAll": true,
        "multi": true,
        "current": {
          "text": "All",
          "value": "$__all"
        }
      }
    ]
  },
  "panels": [
    {
      "id": 1,
      "type": "timeseries",
      "title": "Reconciles by result",
      "description": "How often objects are looked at, and how that ended.",
      "datasource": {
        "type": "prometheus",
        "uid": "${datasource}"
      },
      "gridPos": {
        "h": 8,
        "w": 12,
        "x": 0,
        "y": 0
      },
      "fieldConfig": {
        "defaults": {
          "unit": "reqps",
          "min": 0
        },
        "overrides": []
      },
      "options": {
        "legend": {
          "displayMode": "list",
          "placement": "bottom"
        },
        "tooltip": {
          "mode": "multi"
        }
      },
      "targets": [
        {
          "refId": "A",
          "expr": "sum by (controller, result) (rate(controller_runtime_reconcile_total{namespace=~\"$namespace\",controller=~\"$controller\"}[$__rate_interval]))",
          "legendFormat": "__auto"
        }
      ]
    },
    {
      "id": 2,
      "type": "timeseries",
      "title": "Share of errors",
      "description": "Above a tenth for a quarter of an hour there is an alert.",
      "datasource": {
        "type": "prometheus",
        "uid": "${datasource}"
      },
      "gridPos": {
        "h": 8,
        "w": 12,
        "x": 12,
        "y": 0
      },
      "fieldConfig": {
        "defaults": {
          "unit": "percentunit",
          "min": 0
        },
        "overrides": []
      },
      "options": {
        "legend": {
          "displayMode": "list",
          "placement": "bottom"
        },
        "tooltip": {
          "mode": "multi"
        }
      },
      "targets": [
        {
          "refId": "A",
          "expr": "sum by (controller) (rate(controller_runtime_reconcile_errors_total{namespace=~\"$namespace\",controller=~\"$controller\"}[$__rate_interval])) / sum by (controller) (rate(controller_runtime_reconcile_total{namespace=~\"$namespace\",controller=~\"$controller\"}[$__rate_interval]))",
          "legendFormat": "__auto"
        }
      ]
    },
    {
      "id": 3,
      "type": "timeseries",
      "title": "Time of a reconcile",
      "description": "The middle one, and the slowest in a hundred.",
      "datasource": {
        "type": "prometheus",
        "uid": "${datasource}"
      },
      "gridPos": {
        "h": 8,
        "w": 12,
        "x": 0,
        "y": 8
      },
      "fieldConfig": {
        "defaults": {
          "unit": "s",
          "min": 0
        },
        "overrides": []
      },
      "options": {
        "legend": {
          "displayMode": "list",
          "placement": "bottom"
        },
        "tooltip": {
          "mode": "multi"
        }
      },
      "targets": [
        {
          "refId": "A",
          "expr": "histogram_quantile(0.5, sum by (controller, le) (rate(controller_runtime_reconcile_time_seconds_bucket{namespace=~\"$namespace\",controller=~\"$controller\"}[$__rate_interval])))",
          "legendFormat": "p50"
        },
        {
          "refId": "B",
          "expr": "histogram_quantile(0.99, sum by (controller, le) (rate(controller_runtime_reconcile_time_seconds_bucket{namespace=~\"$namespace\",controller=~\"$controller\"}[$__rate_interval])))",
          "legendFormat": "p99"
        }
      ]
    },
    {
      "id": 4,
      "type": "timeseries",
      "title": "Busy workers",
      "description": "At the limit for long: objects wait for their turn.",
      "datasource": {
        "type": "prometheus",
        "uid": "${datasource}"
      },
      "gridPos": {
        "h": 8,
        "w": 12,
        "x": 12,
        "y": 8
      },
      "fieldConfig": {
        "defaults": {
          "unit": "short",
          "min": 0
        },
        "overrides": []
      },
      "options": {
        "legend": {
          "displayMode": "list",
          "placement": "bottom"
        },
        "tooltip": {
          "mode": "multi"
        }
      },
      "targets": [
        {
          "refId": "A",
          "expr": "sum by (controller) (controller_runtime_active_workers{namespace=~\"$namespace\",controller=~\"$controller\"})",
          "legendFormat": "busy"
        },
        {
          "refId": "B",
          "expr": "sum by (controller) (controller_runtime_max_concurrent_reconciles{namespace=~\"$namespace\",controller=~\"$controller\"})",
          "legendFormat": "at most"
        }
      ]
    },
    {
      "id": 5,
      "type": "timeseries",
      "title": "Leaders",
      "description": "One per controller. None: nothing is done; two: look at once.",
      "datasource": {
        "type": "prometheus",
        "uid": "${datasource}"
      },
      "gridPos": {
        "h": 8,
        "w": 12,
        "x": 0,
        "y": 16
      },
      "fieldConfig": {
        "defaults": {
          "unit": "short",
          "min": 0
        },
        "overrides": []
      },
      "options": {
        "legend": {
          "displayMode": "list",
          "placement": "bottom"
        },
        "tooltip": {
          "mode": "multi"
        }
      },
      "targets": [
        {
          "refId": "A",
          "expr": "sum by (namespace, name) (leader_election_master_status{namespace=~\"$namespace\"})",
          "legendFormat": "__auto"
        }
      ]
    }
  ]
}
{{- end -}}
