document.title = "Perennial";
