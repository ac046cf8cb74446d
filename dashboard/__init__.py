"""The Dash app.

app       `create_app` puts store, pages, routes and security together
state/    configurations, results and uploads, without Dash       frame/   shell, controls, cards, routes, security
words/    numbers in words                                        pages/   one file per page
figures/  plain dictionaries that Plotly draws                    assets/  scripts and styles of the browser
"""
