"""The schedule of a product on a CPU, by one analytic model whose constants are the device's own.

`panels` lists the candidates and takes the cheapest, `prior` says what each costs, `machine` has the constants.
"""
