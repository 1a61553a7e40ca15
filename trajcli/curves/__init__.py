"""Curves through the rows of trajectories: sampling, resampling, retiming and fitting.

``trajcli.sample``, ``resample``, ``retime`` and ``fit`` are what users call.
"""
