"""FedAMP and HeurFedAMP for Flower apps that have their own ClientApp."""
