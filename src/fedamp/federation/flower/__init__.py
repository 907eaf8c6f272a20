"""FedAMP and HeurFedAMP for other people's Flower apps, which have a ClientApp of their own."""
