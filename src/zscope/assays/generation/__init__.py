"""How close are generated observations to real ones?"""
