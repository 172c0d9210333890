"""The GraphDef toolkit: nodes, names, bodies, calls, handles, and edits. Every stage that changes a graph uses it."""
