"""What commands show of runs, one module a task; tasks without one get the plain one."""
