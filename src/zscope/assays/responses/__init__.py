"""What an autoencoder does to a latent vector that is decoded and encoded again."""
