"""From the pipeline file to the physical plan: operators, vertices, edges, and their distribution to subtasks."""
